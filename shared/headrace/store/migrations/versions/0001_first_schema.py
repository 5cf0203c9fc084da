"""Every table of the first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("key_id"),
        sa.UniqueConstraint("sha256"),
    )
    op.create_index("ix_api_keys_org_id", "api_keys", ["org_id"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("timeline", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("boundary", sa.String(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("session_id"),
    )
    op.create_index("ix_attempts_job_id", "attempts", ["job_id"], unique=False)
    op.create_index("ix_attempts_rollout_id", "attempts", ["rollout_id"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("checkpoint_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("timeline", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("has_trainer_state", sa.Boolean(), nullable=False),
        sa.Column("is_kept", sa.Boolean(), nullable=False),
        sa.Column("history", sa.JSON(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("checkpoint_id"),
        sa.UniqueConstraint("job_id", "timeline", "iteration"),
    )
    op.create_index("ix_checkpoints_job_id", "checkpoints", ["job_id"], unique=False)
    op.create_index("ix_checkpoints_org_id", "checkpoints", ["org_id"], unique=False)
    op.create_table(
        "environment_keys",
        sa.Column("env_key_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("env_key_id"),
        sa.UniqueConstraint("org_id", "sha256"),
    )
    op.create_index("ix_environment_keys_org_id", "environment_keys", ["org_id"], unique=False)
    op.create_table(
        "event_rewards",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("call", sa.Integer(), nullable=True),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "position"),
    )
    op.create_index("ix_event_rewards_job_id", "event_rewards", ["job_id"], unique=False)
    op.create_index("ix_event_rewards_rollout_id", "event_rewards", ["rollout_id"], unique=False)
    op.create_table(
        "files",
        sa.Column("file_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("filename", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("n_bytes", sa.BigInteger(), nullable=False),
        sa.Column("n_rows", sa.Integer(), nullable=True),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("file_id"),
    )
    op.create_index("ix_files_org_id", "files", ["org_id"], unique=False)
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("paused_reason", sa.String(), nullable=True),
        sa.Column("waiting_reason", sa.String(), nullable=True),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("topology", sa.String(), nullable=True),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("config_submitted", sa.JSON(), nullable=False),
        sa.Column("config_toml", sa.Text(), nullable=True),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("job_metadata", sa.JSON(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("body_sha256", sa.String(), nullable=False),
        sa.Column("timeline", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.String(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("n_events", sa.Integer(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("iterations", sa.Integer(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("job_id"),
        sa.UniqueConstraint("org_id", "idempotency_key"),
    )
    op.create_index("ix_jobs_model_id", "jobs", ["model_id"], unique=False)
    op.create_index("ix_jobs_org_id", "jobs", ["org_id"], unique=False)
    op.create_index("ix_jobs_pool", "jobs", ["pool"], unique=False)
    op.create_index("ix_jobs_status", "jobs", ["status"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("timeline", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("not_trained_reason", sa.String(), nullable=True),
        sa.Column("advantage", sa.Float(), nullable=True),
        sa.Column("n_trainable_tokens", sa.Integer(), nullable=False),
        sa.Column("min_version", sa.String(), nullable=True),
        sa.Column("max_version", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "rollout_id"),
    )
    op.create_table(
        "metrics",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("phase", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "name", "step"),
    )
    op.create_index("ix_metrics_job_step", "metrics", ["job_id", "step"], unique=False)
    op.create_table(
        "orgs",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("org_id"),
    )
    op.create_table(
        "outcome_rewards",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("disagreement", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("session_id"),
    )
    op.create_index("ix_outcome_rewards_job_id", "outcome_rewards", ["job_id"], unique=False)
    op.create_index("ix_outcome_rewards_rollout_id", "outcome_rewards", ["rollout_id"], unique=False)
    op.create_table(
        "rollouts",
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("group_index", sa.Integer(), nullable=False),
        sa.Column("member", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("timeline", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("outcome_reward", sa.Float(), nullable=True),
        sa.Column("event_reward_sum", sa.Float(), nullable=True),
        sa.Column("n_turns", sa.Integer(), nullable=True),
        sa.Column("n_prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("n_sampled_tokens", sa.Integer(), nullable=True),
        sa.Column("min_version", sa.String(), nullable=True),
        sa.Column("max_version", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("rollout_id"),
    )
    op.create_index("ix_rollouts_job_id", "rollouts", ["job_id"], unique=False)
    op.create_index("ix_rollouts_job_iteration", "rollouts", ["job_id", "purpose", "iteration"], unique=False)
    op.create_table(
        "traces",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("session_id"),
    )
    op.create_index("ix_traces_job_id", "traces", ["job_id"], unique=False)
    op.create_index("ix_traces_rollout_id", "traces", ["rollout_id"], unique=False)
