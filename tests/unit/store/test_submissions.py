from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.errors import Conflict
from headrace.store import submissions
from headrace.store.session import Store
from headrace.store.tables import Job


def job(job_id: str, key: str | None = "k", body: str = "same", org_id: str = "local") -> Job:
    return Job(
        job_id=job_id, org_id=org_id, type="rl", status="queued", pool="p", model="m", body_sha256=body,
        idempotency_key=key,
    )  # fmt: skip


def test_requests_that_race_with_one_key_make_one_job(store: Store) -> None:
    def submit(number: int) -> tuple[str, bool]:
        with store.write() as session:
            stored, is_new = submissions.insert(session, job(f"job_{number}"))
            return stored.job_id, is_new

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(submit, range(16)))
    assert sum(is_new for _, is_new in answers) == 1
    assert len({job_id for job_id, _ in answers}) == 1


def test_a_key_with_another_body_is_a_conflict(store: Store) -> None:
    with store.write() as session:
        submissions.insert(session, job("job_1"))
    with pytest.raises(Conflict, match="job_1"), store.write() as session:
        submissions.insert(session, job("job_2", body="other"))


def test_two_organisations_may_use_one_key_and_no_key_is_never_taken(store: Store) -> None:
    with store.write() as session:
        made = [
            submissions.insert(session, candidate)[1]
            for candidate in (job("a"), job("b", org_id="charlie"), job("c", key=None), job("d", key=None))
        ]
    assert made == [True] * 4
