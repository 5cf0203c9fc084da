"""The runs of a job; each job that is there has one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("run_number", sa.Integer(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("job_id", "run_number"),
    )
    op.execute(
        "INSERT INTO runs (job_id, run_number, org_id, status, created_at, started_at, ended_at) "
        "SELECT job_id, 1, org_id, status, created_at, started_at, finished_at FROM jobs"
    )


def downgrade() -> None:
    op.drop_table("runs")
