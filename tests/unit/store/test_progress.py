from __future__ import annotations

from headrace.store.progress import JobFilter, ledger, list_jobs, metric_points
from headrace.store.session import Store
from headrace.store.tables import Job, LedgerEntry, Metric, Rollout


def test_a_page_of_metrics_never_ends_inside_a_step(store: Store) -> None:
    with store.write() as session:
        for step in (1, 2, 3):
            for name in ("a", "b", "c"):
                session.add(Metric(job_id="j", name=name, step=step, org_id="local", value=step))
    with store.read() as session:
        assert [(p.step, p.name) for p in metric_points(session, "j", -1, None, 4)] == [
            (1, "a"), (1, "b"), (1, "c")
        ]  # fmt: skip
        assert len(metric_points(session, "j", -1, None, 1)) == 3, "a step above the limit comes whole"
        assert len(metric_points(session, "j", 1, None, 6)) == 6
        assert [p.step for p in metric_points(session, "j", 1, "b", 100)] == [2, 3]


def planned(member: int) -> Rollout:
    return Rollout(
        rollout_id=f"j.m{member}", org_id="local", job_id="j", purpose="train", iteration=1, group_index=0,
        member=member, seed=0, timeline=1,
    )  # fmt: skip


def entry(member: int, step: int | None, reason: str | None = None) -> LedgerEntry:
    return LedgerEntry(
        job_id="j", rollout_id=f"j.m{member}", org_id="local", timeline=1, iteration=1, step=step,
        not_trained_reason=reason,
    )  # fmt: skip


def test_the_ledger_is_complete_once_each_planned_rollout_has_a_row(store: Store) -> None:
    with store.write() as session:
        session.add_all([planned(0), planned(1), planned(2)])
        session.add_all([entry(0, 5), entry(1, None, "zero variance")])
    with store.read() as session:
        _, summary = ledger(session, "j")
    assert (summary.planned, summary.trained, summary.is_complete) == (3, 1, False)
    with store.write() as session:
        session.add(entry(2, None, "zero variance"))
    with store.read() as session:
        _, summary = ledger(session, "j")
    assert summary.not_trained == {"zero variance": 2}
    assert summary.is_complete


def test_jobs_are_filtered_by_tag_and_data(store: Store) -> None:
    with store.write() as session:
        for number, tags in enumerate(({"team": "a"}, {"team": "b"}, {})):
            session.add(
                Job(
                    job_id=f"j{number}", org_id="local", type="rl", status="queued", pool="p", model="m",
                    body_sha256="", tags=tags, data={"level": number},
                )
            )  # fmt: skip
    with store.read() as session:
        by_tag, _ = list_jobs(session, "local", JobFilter(tags=(("team", "b"),)), 10)
        by_data, _ = list_jobs(session, "local", JobFilter(data=(("level", "2"),)), 10)
    assert [job.job_id for job in by_tag] == ["j1"]
    assert [job.job_id for job in by_data] == ["j2"]
