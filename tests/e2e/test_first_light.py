"""One command trains a policy end to end: SFT, evaluation, RL with a killed trainer, and a browser on it.

The tests are the chapters of one story and run in order on one stack.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.browser import Browser
from tests.e2e.conftest import Running

from examples.demo.jobs import with_baseline
from examples.walk import goals

WALK = Path("examples/walk")
ITERATIONS, PROMPTS, MEMBERS = 12, 16, 8

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@dataclass
class Story:
    """What the chapters hand on."""

    sft_model: str = ""
    baseline_job: str = ""
    rl_job: str = ""
    accepted_before_kill: dict[str, str] = field(default_factory=dict)
    """rollout_id -> session_id of trajectories accepted in the iteration in which the trainer was killed."""
    killed_iteration: int = 0


@pytest.fixture(scope="module")
def story() -> Story:
    return Story()


def wait_for_end(running: Running, job_id: str, within_s: float = 400) -> dict[str, Any]:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        job = running.api.get_job(job_id)
        if job["status"] in ("succeeded", "failed", "cancelled"):
            return job
        time.sleep(0.5)
    raise AssertionError(f"job {job_id} did not end within {within_s} s: {running.api.get_job(job_id)}")


def test_sft_on_demonstrations_ends_with_a_model_id(
    running_stack: Running, base: str, demonstrations_file: Path, story: Story
):
    done = running_stack.headrace(
        "train", "--config", str(WALK / "sft.toml"), "--dataset", str(demonstrations_file)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [job] = running_stack.api.list_jobs(type="sft")
    story.sft_model = job["model_id"]
    assert story.sft_model == f"ft:{base}:{job['job_id']}"
    losses = [p["value"] for p in running_stack.api.metrics(job["job_id"], name="train.loss")]
    assert losses[-1] < 0.5 * losses[0]


def test_evaluation_of_the_base_plays_every_held_out_goal(running_stack: Running, story: Story):
    story.baseline_job = running_stack.submit(
        "eval", "--config", str(WALK / "eval.toml"), "--model", story.sft_model,
        "--task-url", running_stack.stack.task_url,
    )  # fmt: skip
    job = wait_for_end(running_stack, story.baseline_job)
    assert job["status"] == "succeeded", job["error"]
    result = job["result"]
    assert result["n"] == len(goals.HELD_OUT) * 15
    assert 0.05 < result["success"] < 0.8, "the base must leave something to learn"


def test_rl_job_starts_and_a_browser_sees_its_points_come(
    running_stack: Running, story: Story, tmp_path: Path, browser: Browser
):
    config = tmp_path / "rl.toml"
    text = (
        (WALK / "rl.toml")
        .read_text()
        .replace("iterations_per_epoch = 40", f"iterations_per_epoch = {ITERATIONS}")
    )
    config.write_text(text.replace("learning_rate = 2e-4", "learning_rate = 4e-4"))
    story.rl_job = running_stack.submit(
        "train",
        "--config",
        str(config),
        "--model",
        story.sft_model,
        "--task-url",
        running_stack.stack.task_url,
    )
    browser.open(f"{running_stack.stack.dashboard_url}/jobs/{story.rl_job}")
    browser.wait_for_points("reward.mean", at_least=1)
    browser.forbid_reloads()
    browser.wait_for_points("reward.mean", at_least=1)
    browser.require_no_reload()
    rollout = running_stack.api.rollouts(story.rl_job, status="scored", limit=1)["rollouts"][0]
    stored = running_stack.api.rollout(rollout["rollout_id"])
    token = stored["trajectory"]["calls"][0]["tokens"][0]
    browser.open(f"{running_stack.stack.dashboard_url}/rollouts/{rollout['rollout_id']}")
    shown = browser.first_token()
    assert float(shown["logprob"]) == token["logprob"]
    assert int(shown["token_id"]) == token["id"]
    assert shown["version"] == token["version"]
    browser.require_quiet_console()


def test_the_trainer_is_killed_in_the_middle_of_an_iteration(running_stack: Running, story: Story):
    api, deadline = running_stack.api, time.monotonic() + 240
    pid = running_stack.process("trainer")["pid"]
    while time.monotonic() < deadline:
        iteration = api.get_job(story.rl_job)["iteration"] + 1
        open_now = api.rollouts(
            story.rl_job, purpose="train", iteration=iteration, status="scored", limit=500
        )
        if iteration >= 3 and 8 <= open_now["total"] < PROMPTS * MEMBERS - 8:
            os.kill(pid, signal.SIGKILL)
            # Look again: the iteration may have ended between the look and the kill.
            if api.get_job(story.rl_job)["iteration"] + 1 == iteration:
                story.killed_iteration = iteration
                story.accepted_before_kill = {
                    row["rollout_id"]: row["session_id"] for row in open_now["rollouts"]
                }
                return
            pid = _next_pid(running_stack, pid)
        time.sleep(0.03)
    raise AssertionError("no iteration was caught in the middle")


def _next_pid(running: Running, old: int) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        process = running.process("trainer")
        if process["pid"] not in (None, old) and process["state"] == "ready":
            return process["pid"]
        time.sleep(0.5)
    raise AssertionError("the trainer was not started again")


def test_killed_trainer_loses_no_trajectory_and_trains_on_none_twice(running_stack: Running, story: Story):
    job = wait_for_end(running_stack, story.rl_job)
    assert job["status"] == "succeeded", job["error"]
    assert job["timeline"] >= 2, "the job must have been taken over"
    ledger = running_stack.api.ledger(story.rl_job)
    times = Counter(entry["rollout_id"] for entry in ledger["entries"])
    planned = running_stack.api.rollouts(story.rl_job, purpose="train", limit=1)["total"]
    assert planned >= ITERATIONS * PROMPTS * MEMBERS
    assert len(times) == planned
    assert set(times.values()) == {1}
    assert all(entry["step"] or entry["not_trained_reason"] for entry in ledger["entries"])
    assert ledger["summary"]["is_complete"]
    trained = {e["rollout_id"]: e["session_id"] for e in ledger["entries"] if e["step"]}
    carried = [
        rollout_id
        for rollout_id, session_id in story.accepted_before_kill.items()
        if trained.get(rollout_id) == session_id
    ]
    assert carried, "no trajectory accepted before the kill was trained on after it"


def test_every_iteration_was_trained_on_real_groups(running_stack: Running, story: Story):
    points: dict[str, dict[int, float]] = {}
    for point in running_stack.api.metrics(story.rl_job, limit=10_000):
        points.setdefault(point["name"], {})[point["step"]] = point["value"]
    assert sorted(points["reward.mean"]) == list(range(1, ITERATIONS + 1))
    assert min(points["train.trainable_tokens"].values()) > 0
    assert min(points["train.nonzero_advantages"].values()) > 0
    assert max(points["turns.mean"].values()) > 1, "more than one call in an episode"
    assert max(points["group.zero_variance_share"].values()) < 1
    assert max(points["mismatch.max_abs"].values()) < 1e-3
    assert max(points["probe.max_abs"].values()) <= 1e-4
    for step in points["rollouts.planned"]:
        kinds = ("scored", "policy_failed", "infra_failed", "cancelled")
        accounted = sum(points[f"rollouts.{kind}"][step] for kind in kinds)
        assert points["rollouts.planned"][step] == accounted


def test_the_trained_policy_beats_the_base_outside_the_interval(
    running_stack: Running, story: Story, tmp_path: Path
):
    config = with_baseline(WALK / "eval.toml", story.baseline_job, tmp_path)
    model = running_stack.api.get_job(story.rl_job)["model_id"]
    job_id = running_stack.submit(
        "eval", "--config", str(config), "--model", model, "--task-url", running_stack.stack.task_url
    )
    job = wait_for_end(running_stack, job_id)
    assert job["status"] == "succeeded", job["error"]
    difference = job["result"]["difference"]
    assert difference["n_clusters"] == len(goals.HELD_OUT)
    assert difference["low"] > 0


def test_the_trained_model_answers_its_owner(running_stack: Running, story: Story):
    model = running_stack.api.get_job(story.rl_job)["model_id"]
    question = {"messages": [{"role": "user", "content": "x+3 y-2"}], "temperature": 0, "max_tokens": 12}
    headers = {"Authorization": f"Bearer {running_stack.stack.api_key}"}
    with httpx.Client(base_url=running_stack.stack.api_url, headers=headers, timeout=120) as client:
        answers = [
            client.post("/api/inference/v1/chat/completions", json={"model": model, **question})
            for _ in range(2)
        ]
    for answer in answers:
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] >= 1
        assert set(answer.json()["choices"][0]["message"]["content"]) <= set("UDLR")
    first, again = (answer.json()["choices"][0]["message"] for answer in answers)
    assert first == again, "greedy answers of one model are the same"


def test_a_task_app_that_is_down_fails_the_job_with_one_sentence(running_stack: Running, story: Story):
    raw = {
        "job_type": "rl",
        "data": {
            "endpoint_base_url": "http://127.0.0.1:9",
            "model": story.sft_model,
            "config": {
                "services": {"task_url": "http://127.0.0.1:9"},
                "model": {"source": story.sft_model},
                "training": {
                    "rollouts": {"seeds": [1, 2], "prompts_per_iteration": 2, "rollouts_per_prompt": 2}
                },
            },
        },
    }
    job = wait_for_end(running_stack, running_stack.api.create_rl_job(raw)["job_id"])
    assert job["status"] == "failed"
    assert "task app does not answer at http://127.0.0.1:9" in job["error"]
    assert "Traceback" not in job["error"]


def test_a_running_job_is_cancelled(running_stack: Running, story: Story):
    job_id = running_stack.submit(
        "train", "--config", str(WALK / "rl.toml"), "--model", story.sft_model,
        "--task-url", running_stack.stack.task_url,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while running_stack.api.get_job(job_id)["status"] == "queued" and time.monotonic() < deadline:
        time.sleep(0.2)
    running_stack.api.cancel_job(job_id)
    job = wait_for_end(running_stack, job_id, within_s=60)
    assert job["status"] == "cancelled"
    ledger = running_stack.api.ledger(job_id)
    assert ledger["summary"]["is_complete"]
