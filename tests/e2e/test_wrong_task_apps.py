"""A task app that answers wrongly fails the job with one sentence; nothing of it becomes a reward."""

from __future__ import annotations

import pytest
from tests.e2e.conftest import Running
from tests.e2e.test_first_light import wait_for_end
from tests.fakes.server import serving
from tests.fakes.task_app import KEY, FakeTaskApp

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SLOW = pytest.mark.slow
KINDS = [
    pytest.param("nan", "nan", id="nan"),
    pytest.param("401", "401", id="unauthorised"),
    pytest.param("500", "500", id="broken", marks=SLOW),
    pytest.param("malformed", "JSON", id="malformed", marks=SLOW),
    pytest.param("inf", "inf", id="infinite", marks=SLOW),
    pytest.param("missing", "reward", id="missing"),
]


@pytest.mark.parametrize(("kind", "said"), KINDS)
def test_a_wrong_answer_fails_the_job_and_says_what_was_wrong(
    running_stack: Running, base: str, kind: str, said: str
):
    running_stack.api.upload_environment_key(KEY)  # what the app echoes must be known to be hidden
    with serving(FakeTaskApp(kind).app) as url:
        config = {
            "services": {"task_url": url},
            "model": {"base": base},
            "policy": {"max_tokens": 4},
            "training": {"rollouts": {"seeds": [1, 2], "prompts_per_iteration": 2, "rollouts_per_prompt": 2}},
        }
        payload = {"job_type": "rl", "data": {"endpoint_base_url": url, "base_model": base, "config": config}}
        job = wait_for_end(running_stack, running_stack.api.create_rl_job(payload)["job_id"])
    assert job["status"] == "failed"
    assert said in job["error"]
    assert "task app" in job["error"] or "task_app" in job["error"]
    for never in ("Traceback", KEY, "\n"):
        assert never not in job["error"]
    rollouts = running_stack.api.rollouts(job["job_id"], limit=500)["rollouts"]
    assert all(rollout["outcome_reward"] is None for rollout in rollouts)
    assert running_stack.api.ledger(job["job_id"])["summary"]["is_complete"]
