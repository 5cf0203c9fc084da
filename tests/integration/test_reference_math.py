"""The released math task app, unmodified: preflight, real worker and gateway, and a real step of the trainer.

The engine is scripted, since an untrained model calls no tool. Once with the app's recorded answers (gate),
once with the app itself (`slow`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tests.fakes import reference_math
from tests.fakes.policy_stack import PolicyStack
from tests.fakes.reference_math import KEY
from tests.fakes.tiny_model import CHATML_TOOLS, make_tiny_model
from tests.fakes.trainer import TrainerWorld, rollout_id, template
from tests.fakes.worker import POOL, SECRET_KEY, working
from tests.integration.running_api import RunningApi, api  # noqa: F401  (a fixture)

from headrace.config.rl import RLConfig, Training
from headrace.contracts.policy import PolicyVersion, Sampling
from headrace.contracts.trajectory import Outcome, Trajectory
from headrace.queue.secrets import seal
from headrace.render import Renderer
from headrace.render.splice import next_prompt
from headrace.rl.sequences import sequences_of
from headrace.rl.staleness import PolicyHistory
from headrace.store import keys
from headrace.store.plan import PlannedRollout
from headrace_trainer.batch import Row, TrainingBatch
from headrace_trainer.collector import Collector
from headrace_trainer.group_book import Group, GroupBook
from headrace_trainer.intake import Intake
from headrace_trainer.lesson import lesson_of
from headrace_trainer.logprobs import sampled_logprobs
from headrace_trainer.losses.select import loss_function
from headrace_trainer.model import load_policy
from headrace_trainer.optimizer import make_optimizer
from headrace_trainer.step import rl_step

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
torch.set_num_threads(1)

START = PolicyVersion(timeline=1, n=0)
REWARDS = {"correct": 1.0, "wrong": 0.0, "blank": -0.5, "no_tool_call": -1.0}
ANSWERS = {"correct": "5", "wrong": "6", "blank": ""}


@pytest.fixture(scope="module")
def replayed() -> Iterator[str]:
    with reference_math.replayed() as url:
        yield url


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with reference_math.real(tmp_path_factory.mktemp("math")) as url:
        yield url


@pytest.fixture(params=["replayed", pytest.param("real", marks=pytest.mark.slow)])
def math_url(request: pytest.FixtureRequest) -> str:
    """Address of the app, replayed or real."""
    return request.getfixturevalue(request.param)


def text_of(case: str) -> str:
    """What the policy writes: a tool call in the manner of Qwen, or plain text."""
    if case == "no_tool_call":
        return "The answer is 5."
    call = {"name": "math_submit", "arguments": {"answer": ANSWERS[case]}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def message_of(case: str) -> dict[str, Any]:
    """What the engine's parsers read from it."""
    if case == "no_tool_call":
        return {"role": "assistant", "content": text_of(case)}
    function = {"name": "math_submit", "arguments": json.dumps({"answer": ANSWERS[case]})}
    call = {"id": f"call_{case}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@dataclass
class Policy:
    """The tiny model: what it is given for the first problem, and what it thinks of scripted replies."""

    folder: Path

    def __post_init__(self) -> None:
        self.model, self.renderer = load_policy(self.folder), Renderer.load(self.folder)
        asked = reference_math.inference_request()
        self.prompt = list(next_prompt(self.renderer, [], asked["messages"], asked["tools"]).token_ids)

    def reply_ids(self, case: str) -> list[int]:
        [stop] = [i for i in self.renderer.eos_ids if self.renderer.token_text(i) == "<|im_end|>"]
        return [*self.renderer.encode(text_of(case)), stop]

    def logprobs(self, case: str) -> list[float]:
        ids = self.prompt + self.reply_ids(case)
        mask = [0] * len(self.prompt) + [1] * len(self.reply_ids(case))
        row = Row(source=case, unit=case, token_ids=ids, mask=mask)
        [batch] = TrainingBatch.of_rows([row], normalization="token", max_model_len=4096).microbatches(1)
        with torch.no_grad():
            return sampled_logprobs(self.model, batch)[0].tolist()

    def scripted(self, case: str) -> dict[str, Any]:
        return {
            "token_ids": self.reply_ids(case),
            "logprobs": self.logprobs(case),
            "message": message_of(case),
        }


@dataclass
class Stage:
    """Gateway with a scripted engine, a worker, and the trainer's side of a job."""

    stack: PolicyStack
    policy: Policy
    world: TrainerWorld

    def script(self, *replies: dict[str, Any]) -> None:
        httpx.post(f"{self.stack.engine_url}/fake", json={"replies": replies}).raise_for_status()

    def collect(self, task_url: str, n_members: int) -> Collector:
        """One group of the first problem, played by the worker; infrastructure failures are played again."""
        job = self.world.claim()
        intake = Intake.take_over(job, lambda _: True)
        orders = replace(
            template(job.timeline), serve_id="serve_1", task_url=task_url, policy_url=self.stack.url,
            policy_public_url=self.stack.url, env_name="math", env_config={"split": "train"},
            policy_name="math", sampling=Sampling(max_tokens=128), deadline_s=60.0,
        )  # fmt: skip
        book = GroupBook(n_wanted=1, min_members=n_members, max_attempts=2)

        def plan_group(index: int) -> list[PlannedRollout]:
            return [PlannedRollout(rollout_id(index, m), index, m, seed=0) for m in range(n_members)]

        return Collector(intake, orders, book, plan_group=plan_group, max_concurrent=n_members)


@pytest.fixture
def stage(tmp_path: Path, store, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("HEADRACE_POOL", POOL)
    with ExitStack() as stop:
        policy = Policy(make_tiny_model(tmp_path / "model", chat_template=CHATML_TOOLS, positions=4096))
        stack = PolicyStack(tmp_path, valkey_url, "tests.fakes.gateway")
        stop.callback(stack.close)
        stack.start()
        stack.serve(stack.spec(policy.folder, max_model_len=4096))
        world = TrainerWorld(tmp_path, store, valkey_url)
        with store.write() as session:
            keys.store_environment_key(session, "local", "ENVIRONMENT_API_KEY", KEY, seal(SECRET_KEY, [KEY]))
        stop.enter_context(working(valkey_url, tmp_path))
        yield Stage(stack, policy, world)


def trajectories(group: Group) -> list[Trajectory]:
    return [member.trajectory for member in group.members if member.trajectory is not None]


def case_of(trajectory: Trajectory) -> str:
    return next(case for case, reward in REWARDS.items() if reward == trajectory.rewards.outcome_reward)


def test_the_worker_plays_it_and_the_trainer_steps_on_exactly_the_sampled_tokens(math_url: str, stage: Stage):
    policy = stage.policy
    before = {case: sum(policy.logprobs(case)) for case in REWARDS}
    stage.script(
        policy.scripted("correct"), {"status": 500}, policy.scripted("wrong"),
        policy.scripted("no_tool_call"), policy.scripted("blank"),
    )  # fmt: skip
    [group] = stage.collect(math_url, n_members=4).collect()
    played = trajectories(group)

    assert sorted(case_of(one) for one in played) == sorted(REWARDS)
    assert sorted(one.attempt for one in played) == [1, 1, 1, 2], "the broken one was played again"
    for one in played:
        _check_capture(one, policy)

    training = Training(learning_rate=1e-3)
    config = RLConfig.model_validate(
        {"services": {"task_url": math_url}, "model": {"base": "m"}, "training": training.model_dump()}
    )
    lesson = lesson_of([group], config, PolicyHistory.start(START), START, 4096)
    _check_rows(lesson.batch, played, policy)
    advantages = {case_of(one.trajectory): one.advantage for one in lesson.rollouts}
    assert advantages["correct"] > advantages["wrong"] > advantages["blank"] > advantages["no_tool_call"]

    optimizer = make_optimizer(policy.model, learning_rate=1e-3, weight_decay=0.0)
    learnt = rl_step(policy.model, optimizer, lesson.batch, training, loss=loss_function(training), step=0)
    assert learnt.n_optimizer_steps == 1
    assert learnt.metrics["mismatch.max_abs"] < 1e-4
    gained = {case: sum(policy.logprobs(case)) - before[case] for case in REWARDS}
    assert gained["correct"] > gained["no_tool_call"]


def _check_capture(trajectory: Trajectory, policy: Policy) -> None:
    """One call: the app's prompt with its tool, and the reply's tokens and logprobs as the engine gave them."""
    case = case_of(trajectory)
    [call] = trajectory.calls
    assert trajectory.outcome is Outcome.SCORED
    assert trajectory.task_app.task_id == "math_single_step"
    assert list(call.new_prompt_ids) == policy.prompt
    assert "math_submit" in policy.renderer.decode(call.new_prompt_ids, skip_special=False)
    assert list(call.sampled_ids) == policy.reply_ids(case)
    assert list(call.sampled_logprobs) == pytest.approx(policy.logprobs(case), abs=1e-6)
    assert "tool_choice" in call.overridden, "no grammar may constrain what is trained on"
    [op] = trajectory.ops
    assert op.action == (
        [{"tool": "math_submit", "args": {"answer": ANSWERS[case]}}] if case in ANSWERS else []
    )
    assert op.info["status"] == {
        "correct": "correct", "wrong": "incorrect", "blank": "blank_answer", "no_tool_call": "missing_tool_call",
    }[case]  # fmt: skip


def _check_rows(batch: TrainingBatch, played: list[Trajectory], policy: Policy) -> None:
    """One row per member: the prompt as context, the sampled tokens and nothing else trained."""
    by_unit = {row.unit: row for row in batch.rows}
    assert len(by_unit) == len(batch.rows) == len(played)
    for one in played:
        row, reply = by_unit[one.rollout_id], policy.reply_ids(case_of(one))
        assert list(row.token_ids) == policy.prompt + reply
        assert list(row.mask) == [0] * len(policy.prompt) + [1] * len(reply)
        assert [len(sequence) for sequence in sequences_of(one)] == [len(row.token_ids)]


def test_an_engine_that_stays_broken_gives_no_reward(math_url: str, stage: Stage):
    """The app answers 200 with -1 each time; the rollout is given up, and its group is played anew."""
    stage.script({"status": 500}, {"status": 500}, stage.policy.scripted("correct"))
    collector = stage.collect(math_url, n_members=1)
    [group] = collector.collect()
    [given_up, replacement] = collector.book.groups
    assert given_up.is_replaced
    assert "engine" in str(given_up.members[0].dead_reason)
    assert group is replacement
    assert [case_of(one) for one in trajectories(group)] == ["correct"]


def test_the_preflight_accepts_it_with_the_stored_key_and_no_other(math_url: str, api: RunningApi):  # noqa: F811
    refused = api.alice.verify_task_app(math_url)
    assert not refused["any_ok"]
    api.alice.upload_environment_key("another-key-000000000")
    refused = api.alice.verify_task_app(math_url)
    assert not refused["any_ok"]
    assert KEY[:15] not in json.dumps(refused["attempts"]), (
        "at most 4 characters of the hint at its key may travel"
    )
    api.alice.upload_environment_key(KEY)
    found = api.alice.verify_task_app(math_url)
    assert found["any_ok"], found
    assert any(attempt["ok"] and attempt["status"] == 200 for attempt in found["attempts"])
    assert found["task_info"]["task_id"] == "math_single_step"
    assert found["task_info"]["splits"] == ["train", "test"]
    assert found["task_info"]["sizes"] == {"train": 4, "test": 4}
