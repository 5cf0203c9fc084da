"""A job once more: resumed as a new run, or cloned."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.running_api import RunningApi, api  # noqa: F401  (a fixture)

from headrace.contracts.job import JobStatus
from headrace.errors import ConfigError, Conflict, NotFound
from headrace.queue import names
from headrace.store import jobs
from headrace.store import runs as stored_runs


def failed(api: RunningApi, job_id: str) -> None:  # noqa: F811
    with api.store.write() as session:
        timeline = jobs.claim(session, job_id, "trainer")
        jobs.move(session, job_id, JobStatus.FAILED, timeline=timeline, error="the disk is full")


def test_a_resumed_job_is_queued_as_a_new_run_without_the_old_error(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    failed(api, job_id)
    assert api.alice.get_job(job_id)["error"] == "the disk is full"
    api.redis.delete(names.job_wakeup("local-cpu", "rl"))
    job = api.alice.resume_job(job_id)
    assert (job["status"], job["error"], job["finished_at"]) == ("queued", None, None)
    assert api.redis.lrange(names.job_wakeup("local-cpu", "rl"), 0, -1) == [job_id.encode()]
    first, second = api.alice.runs(job_id)
    assert (first["run_number"], first["status"]) == (1, "failed")
    assert first["started_at"]
    assert first["ended_at"]
    assert (second["run_number"], second["status"], second["ended_at"]) == (2, "queued", None)
    with api.store.write() as session:
        assert jobs.claim(session, job_id, "trainer") == 2, "a later run has a later timeline"
    assert [run["status"] for run in api.alice.runs(job_id)] == ["failed", "running"]
    assert api.alice.events(job_id)[-1]["type"] == "rl.job.resumed"


def test_a_cancelled_job_forgets_the_wish_when_it_is_resumed(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with api.store.write() as session:
        timeline = jobs.claim(session, job_id, "trainer")
    assert api.alice.cancel_job(job_id)["cancel_requested"]
    with api.store.write() as session:
        jobs.move(session, job_id, JobStatus.CANCELLED, timeline=timeline)
    assert not api.alice.resume_job(job_id)["cancel_requested"]


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.SUCCEEDED])
def test_only_a_failed_or_cancelled_job_is_resumed(api: RunningApi, status: JobStatus) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with api.store.write() as session:
        if status is not JobStatus.QUEUED:
            jobs.claim(session, job_id, "trainer")
        if status is JobStatus.SUCCEEDED:
            jobs.move(session, job_id, status)
    with pytest.raises(Conflict, match=f"is {status}; only a failed or cancelled job is resumed"):
        api.alice.resume_job(job_id)
    with api.store.read() as session:
        assert len(stored_runs.of_job(session, job_id)) == 1


def test_a_clone_is_a_new_job_with_the_changed_keys(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    overrides = {"training.learning_rate": 5e-6, "tags.team": "red"}
    made = api.alice.clone_job(job_id, overrides=overrides)
    assert made["job_id"] != job_id
    assert made["metadata"]["cloned_from"] == job_id
    config = api.alice.job_config(made["job_id"])["resolved"]
    assert (config["training"]["learning_rate"], config["tags"]) == (5e-6, {"team": "red"})


def test_a_clone_of_another_clients_job_keeps_its_keys_and_takes_no_unknown_new_one(
    api: RunningApi,  # noqa: F811
) -> None:
    payload: dict[str, Any] = api.rl_payload() | {"strict": False}
    payload["data"]["config"] |= {"no_such_section": {"x": 1}}
    job_id = api.alice.create_rl_job(payload)["job_id"]
    made = api.alice.clone_job(job_id, idempotency_key="once")
    assert api.alice.clone_job(job_id, idempotency_key="once")["job_id"] == made["job_id"]
    with pytest.raises(ConfigError, match="did you mean `learning_rate`"):
        api.alice.clone_job(job_id, overrides={"training.lerning_rate": 1})
    with pytest.raises(ConfigError, match="learning_rate = -1"):
        api.alice.clone_job(job_id, overrides={"training.learning_rate": -1})


def test_the_jobs_of_others_can_be_neither_resumed_nor_cloned(api: RunningApi) -> None:  # noqa: F811
    with pytest.raises(NotFound):
        api.alice.clone_job("job_none")
    with pytest.raises(NotFound):
        api.alice.resume_job("job_none")


def test_a_list_is_read_page_by_page_and_an_unknown_filter_is_refused(api: RunningApi) -> None:  # noqa: F811
    made = [api.alice.create_rl_job(api.rl_payload())["job_id"] for _ in range(5)]
    seen, after = [], None
    while True:
        page = api.alice.jobs_page(limit=2, after=after)
        seen += [job["job_id"] for job in page["jobs"]]
        after = seen[-1]
        if not page["has_more"]:
            break
    assert seen == made[::-1]
    with pytest.raises(Exception, match="status = 'done' is none of queued, running"):
        api.alice.list_jobs(status="done")


def test_what_was_said_of_a_config_is_on_the_job(api: RunningApi) -> None:  # noqa: F811
    payload: dict[str, Any] = api.rl_payload() | {"strict": False}
    payload["data"]["config"] |= {"no_such_section": {"x": 1}}
    job_id = api.alice.create_rl_job(payload)["job_id"]
    notes = {note["type"]: note["keys"] for note in api.alice.get_job(job_id)["notes"]}
    assert notes["rl.config.ignored"] == ["no_such_section"]


def test_the_notes_come_with_every_answer_about_the_job_and_with_no_other(api: RunningApi) -> None:  # noqa: F811
    payload: dict[str, Any] = api.rl_payload() | {"strict": False}
    payload["data"]["config"] |= {"no_such_section": {"x": 1}}
    made = api.alice.create_rl_job(payload)
    plain = api.alice.create_rl_job(api.rl_payload())
    [note] = made["notes"]
    assert note["keys"] == ["no_such_section"]
    assert plain["notes"] == []
    listed = {job["job_id"]: job["notes"] for job in api.alice.list_jobs()}
    assert listed == {made["job_id"]: [note], plain["job_id"]: []}
    assert api.alice.cancel_job(made["job_id"])["notes"] == [note]
    assert api.alice.resume_job(made["job_id"])["notes"] == [note]
