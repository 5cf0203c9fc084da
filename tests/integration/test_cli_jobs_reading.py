"""`headrace jobs` shows, exports and follows what the API knows of jobs."""

from __future__ import annotations

import json

import pytest
from tests.fakes.cutting_proxy import cutting
from tests.integration.calling import Cli, account, claim, cli, end, measure, played, rl_job  # noqa: F401
from tests.integration.running_api import RunningApi, api  # noqa: F401

from headrace.contracts.job import JobStatus
from headrace.store import jobs

pytestmark = pytest.mark.integration


def ids(said) -> list[str]:
    return [job["job_id"] for job in said.json()]


def test_the_list_is_filtered_by_tag_data_model_status_and_type(api: RunningApi, cli: Cli):  # noqa: F811
    red = rl_job(api, tags={"team": "red"}, data={"suite": "a"})
    blue = rl_job(api, tags={"team": "blue"})
    api.alice.cancel_job(blue)
    assert ids(cli("jobs", "list", "--json")) == [blue, red]
    for wanted, found in (
        (("--tag", "team=red"), [red]), (("--tag", "team:blue"), [blue]), (("--data", "suite=a"), [red]),
        (("--status", "cancelled"), [blue]), (("--type", "rl"), [blue, red]), (("--type", "sft"), []),
        (("--model", api.model), [blue, red]), (("--model", "other"), []), (("--pool", "local-cpu"), [blue, red]),
    ):  # fmt: skip
        assert ids(cli("jobs", "list", "--json", *wanted)) == found, wanted
    assert red in cli("jobs", "list").out
    wrong = cli("jobs", "list", "--tag", "red")
    assert (wrong.code, wrong.err) == (2, "error: --tag red is not KEY=VALUE\n")


def test_a_long_list_is_read_page_by_page(api: RunningApi, cli: Cli):  # noqa: F811
    first, second, third = (rl_job(api) for _ in range(3))
    page = cli("jobs", "list", "--limit", "2", "--json")
    assert ids(page) == [third, second]
    assert page.err == f"there are more: --after {second}\n"
    rest = cli("jobs", "list", "--limit", "2", "--after", second, "--json")
    assert (ids(rest), rest.err) == ([first], "")


def test_show_tells_where_a_job_stands_and_what_of_its_config_had_no_effect(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api, judge={"timeout_s": 5})
    claim(api, job_id)
    played(api, job_id, 1.0)
    with api.store.write() as session:
        job = jobs.get_job(session, "local", job_id)
        job.paused_reason, job.result = "no worker takes its orders", {"reward": {"mean": 0.25}}
        session.add(job)
    said = cli("jobs", "show", job_id)
    assert said.code == 0, said.err
    assert "paused: no worker takes its orders" in said.out
    assert "note: accepted, not used: [judge]" in said.out
    assert "reward.mean  0.25" in said.out
    assert "1  task_app  the task app answered 500" in said.out
    whole = cli("jobs", "show", job_id, "--json").json()
    assert [run["run_number"] for run in whole["runs"]] == [1]
    assert [attempt["attempt"] for attempt in whole["failed_attempts"]] == [1]


def test_show_names_every_run_of_a_resumed_job(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    assert cli("jobs", "cancel", job_id).out == f"job {job_id}: cancelled\n"
    resumed = cli("jobs", "resume", job_id)
    assert resumed.out == f"job {job_id}: queued; follow it with `headrace jobs follow {job_id}`\n"
    assert [run["status"] for run in cli("jobs", "show", job_id, "--json").json()["runs"]] == [
        "cancelled", "queued"
    ]  # fmt: skip
    assert "runs:" in cli("jobs", "show", job_id).out
    again = cli("jobs", "resume", job_id)
    assert again.code == 1
    assert "queued" in again.err


def test_a_clone_has_the_changed_keys_and_an_unknown_one_is_refused(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    made = cli(
        "jobs", "clone", job_id, "--set", "training.learning_rate=5e-6", "--set", "tags.team=red", "--json"
    )
    config = api.alice.job_config(made.json()["job_id"])["resolved"]
    assert (config["training"]["learning_rate"], config["tags"]) == (5e-6, {"team": "red"})
    wrong = cli("jobs", "clone", job_id, "--set", "training.learning_rat=5e-6")
    assert wrong.code == 2
    assert "learning_rate" in wrong.err
    with open("other.toml", "w") as file:
        file.write(f'[services]\ntask_url = "http://127.0.0.1:9"\n[model]\nbase = "{api.model}"\n'
                   "[rollout]\nmax_turns = 7\n")  # fmt: skip
    first = cli("jobs", "clone", job_id, "--config", "other.toml", "--idempotency", "once", "--json").json()
    second = cli("jobs", "clone", job_id, "--config", "other.toml", "--idempotency", "once", "--json").json()
    assert first["job_id"] == second["job_id"]
    assert api.alice.job_config(first["job_id"])["resolved"]["rollout"]["max_turns"] == 7


def test_events_are_a_page_a_table_and_an_export(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    with api.store.write() as session:
        for n in range(3):
            jobs.add_event(session, "local", job_id, "rl.train.step", f"step {n}")
    page = cli("jobs", "events", job_id, "--json", "--since", "1", "--limit", "2").json()
    assert [event["seq"] for event in page] == [2, 3]
    lines = cli("jobs", "events", job_id, "--jsonl").lines()
    assert [event["seq"] for event in lines] == list(range(1, len(lines) + 1))
    assert "step 2" in cli("jobs", "events", job_id).out
    both = cli("jobs", "events", job_id, "--json", "--jsonl")
    assert both.code == 2
    assert "--json and --jsonl exclude each other" in both.err


def test_a_followed_stream_that_is_cut_loses_and_repeats_nothing(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    claim(api, job_id)
    with api.store.write() as session:
        for n in range(20):
            jobs.add_event(session, "local", job_id, "rl.train.step", f"step {n}")
    end(api, job_id, JobStatus.SUCCEEDED)
    wanted = [event["seq"] for event in api.alice.events(job_id, limit=1000)]
    with cutting(api.url, cut_after=2000) as proxy:
        said = cli("jobs", "events", job_id, "-f", "--jsonl", "--backend", proxy.url)
        assert proxy.n_streams == 2
    assert [event["seq"] for event in said.lines()] == wanted
    assert "going on" in said.err


def test_logs_put_failed_attempts_between_the_events(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    claim(api, job_id)
    rollout_id, *_ = played(api, job_id, 1.0)
    end(api, job_id, JobStatus.FAILED, error="the disk is full")
    lines = cli("jobs", "logs", job_id, "--jsonl").lines()
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    failed = [line["message"] for line in lines if line["type"] == "attempt.failed"]
    assert failed == [f"rollout {rollout_id}, attempt 1: infra_failed at task_app: the task app answered 500"]
    followed = cli("jobs", "logs", job_id, "-f", "--jsonl").lines()
    assert sorted(map(json.dumps, followed)) == sorted(map(json.dumps, lines))
    loud = cli("jobs", "logs", job_id, "--level", "warning").out
    assert "attempt.failed" in loud
    assert "  info  " not in loud
    assert len(cli("jobs", "logs", job_id, "--level", "error").out.splitlines()) < len(loud.splitlines())


def test_metrics_are_a_row_per_step_with_chosen_columns(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    measure(api, job_id, 1, reward_mean=0.25, train_loss=2.0, time_rollout_s=9.0)
    measure(api, job_id, 2, reward_mean=0.5, train_loss=1.5)
    table = cli("jobs", "metrics", job_id)
    assert table.out.splitlines() == [
        "step  reward.mean  train.loss", "1     0.25         2", "2     0.5          1.5"
    ]  # fmt: skip
    assert "1 more metrics" in table.err
    chosen = cli("jobs", "metrics", job_id, "--name", "time.*", "--name", "reward.mean").out.splitlines()
    assert chosen == ["step  reward.mean  time.rollout_s", "1     0.25         9", "2     0.5          -"]
    assert cli("jobs", "metrics", job_id, "--long", "--after-step", "1").out.splitlines() == [
        "step  name         value", "2     reward.mean  0.5", "2     train.loss   1.5"
    ]  # fmt: skip
    points = cli("jobs", "metrics", job_id, "--json", "--name", "reward.mean").json()
    assert [(point["step"], point["value"]) for point in points] == [(1, 0.25), (2, 0.5)]
    exported = cli("jobs", "metrics", job_id, "--jsonl").lines()
    assert [(point["step"], point["name"]) for point in exported] == [
        (1, "reward.mean"), (1, "time.rollout_s"), (1, "train.loss"), (2, "reward.mean"), (2, "train.loss")
    ]  # fmt: skip


def test_rewards_are_a_row_per_iteration_with_the_frequency_of_each_event(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    played(api, job_id, 0.0, 1.0)
    [row] = cli("jobs", "rewards", job_id, "--json").json()
    assert (row["n"], row["reward_mean"]) == (2, 0.5)
    assert row["events"]["found"]["frequency"] == 1.0
    assert cli("jobs", "rewards", job_id, "--jsonl").lines() == [row]
    header, line = cli("jobs", "rewards", job_id).out.splitlines()
    assert header.split() == ["iteration", "n", "reward", "return", "std", "found"]
    assert line.split()[1:3] == ["2", "0.5"]
    assert cli("jobs", "rewards", job_id, "--purpose", "eval", "--json").json() == []


def test_rollouts_are_exported_as_lines(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    rollouts = played(api, job_id, 0.0, 1.0)
    lines = cli("traces", "list", job_id, "--jsonl").lines()
    assert [(line["rollout_id"], line["outcome_reward"]) for line in lines] == list(
        zip(rollouts, (0.0, 1.0), strict=True)
    )
    assert cli("traces", "list", job_id, "--jsonl", "--purpose", "eval").lines() == []


def test_a_ledger_that_does_not_add_up_ends_with_one(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    first, second = played(api, job_id, 0.0, 1.0)
    account(api, job_id, first, step=1)
    open_one = cli("jobs", "ledger", job_id, "--jsonl")
    assert open_one.code == 1
    assert [json.loads(line)["rollout_id"] for line in open_one.out.splitlines()] == [first]
    assert open_one.err == "1 of 2 planned rollouts are not accounted for\n"
    account(api, job_id, second, step=None, reason="zero variance")
    closed = cli("jobs", "ledger", job_id)
    assert (closed.code, closed.err) == (0, "")
    assert "not trained: zero variance  1" in closed.out
    assert "every planned rollout is accounted for" in closed.out
    lines = cli("jobs", "ledger", job_id, "--jsonl").lines()
    assert [(line["step"], line["not_trained_reason"]) for line in lines] == [
        (1, None),
        (None, "zero variance"),
    ]
    assert cli("jobs", "ledger", job_id, "--json").json()["summary"]["planned"] == 2


def test_an_unknown_job_is_one_sentence_for_every_command(api: RunningApi, cli: Cli):  # noqa: F811
    for command in ("show", "events", "logs", "metrics", "rewards", "ledger", "cancel", "resume", "clone",
                    "follow", "checkpoints"):  # fmt: skip
        said = cli("jobs", command, "job_none")
        assert (said.code, said.out) == (1, ""), command
        assert "job_none" in said.err, command
        assert len(said.err.splitlines()) == 1, said.err
    assert cli("jobs", "events", "job_none", "-f").code == 1
    assert cli("jobs", "metrics", "job_none", "--jsonl").code == 1
