"""Task apps of the SDK over real HTTP, against a faked policy."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.fakes.policy import TOKEN, FakePolicy, Refusal
from tests.fakes.server import serving

from headrace.contracts.policy import Sampling, SessionOpen
from headrace.task_app import Action, Environment, Event, SingleTurn, StepResult, TaskApp, load, scaffold

pytestmark = pytest.mark.integration
KEY = "environment-key-0123456789"
HEADERS = {"X-API-Key": KEY}


class Sums(Environment):
    system = "Answer with the number only."

    def reset(self, seed: int) -> str:
        self.numbers = random.Random(seed)
        return self._ask()

    def step(self, action: Action) -> StepResult:
        is_right = action.strip() == self.answer
        return StepResult(self._ask(), float(is_right), done=is_right, invalid=not action.strip().isdigit())

    def _ask(self) -> str:
        a, b = self.numbers.randint(0, 9), self.numbers.randint(0, 9)
        self.answer = str(a + b)
        return f"{a} + {b} ="


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVIRONMENT_API_KEY", KEY)
    monkeypatch.setenv("ENVIRONMENT_API_KEY_ALIASES", "older-key-12345678, oldest-key-1234567")


@pytest.fixture
def policy() -> Iterator[tuple[FakePolicy, str]]:
    fake = FakePolicy()
    with serving(fake.app) as url:
        yield fake, url


def open_session(policy_url: str, session_id: str) -> str:
    opened = SessionOpen(
        session_id=session_id, job_id="j", rollout_id="r", attempt=1, timeline=1, serve_id="s", mode="rl",
        sampling=Sampling(), ttl_s=60,
    )  # fmt: skip
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.post(f"{policy_url}/sessions", json=opened.model_dump(mode="json"), headers=headers)
    return policy_url + answer.json()["path"]


def rollout(
    task_url: str, policy_url: str, session_id: str = "trace_1", turns: int = 2, **changes: Any
) -> httpx.Response:
    body = {
        "run_id": session_id,
        "env": {"seed": 5},
        "policy": {
            "config": {
                "inference_url": open_session(policy_url, session_id),
                "model": "m",
                "temperature": 0.7,
                "max_tokens": 9,
                "trace_correlation_id": session_id,
            }
        },
        "ops": ["agent", "env"] * turns,
        "mode": "rl",
    } | changes
    return httpx.post(f"{task_url}/rollout", json=body, headers=HEADERS, timeout=30)


def adding(_: int, messages: list[dict[str, Any]]) -> str:
    a, b = messages[-1]["content"].removesuffix(" =").split(" + ")
    return str(int(a) + int(b))


def test_a_rollout_is_played_and_answered_in_the_contracts_shape(policy):
    fake, policy_url = policy
    fake.script = lambda index, messages: "dunno" if index == 0 else adding(index, messages)
    with serving(TaskApp(Sums, task_id="sums")) as url:
        answer = rollout(url, policy_url).json()
    assert answer["run_id"] == answer["trace_correlation_id"] == "trace_1"
    assert answer["metrics"]["mean_return"] == answer["outcome_reward"] == 1.0
    assert answer["metrics"]["episode_returns"] == [1.0]
    assert answer["ops_executed"] == 4
    [trajectory] = answer["trajectories"]
    first, last = trajectory["steps"]
    assert (first["info"]["invalid_action"], last["info"]["invalid_action"]) == (True, False)
    assert (first["done"], last["done"], last["reward"]) == (False, True, 1.0)
    assert last["info"]["meta"]["raw_response"]["id"] == "chatcmpl-trace_1-1"
    assert last["info"]["latency_ms"] >= 0
    assert trajectory["length"] == 2
    assert trajectory["inference_url"] == answer["pipeline_metadata"]["inference_url"]
    roles = [message["role"] for message in fake.requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert fake.requests[0]["temperature"] == 0.7
    assert fake.requests[0]["max_tokens"] == 9
    assert fake.requests[0]["model"] == "m"


def test_a_plan_that_runs_out_ends_the_episode_as_truncated(policy):
    fake, policy_url = policy
    with serving(TaskApp(Sums, task_id="sums")) as url:
        answer = rollout(url, policy_url, turns=3).json()
    assert answer["trajectories"][0]["final"]["truncated"] is True
    assert answer["outcome_reward"] == 0.0
    assert len(fake.requests) == 3


@pytest.mark.parametrize(
    ("app_limit", "changes"),
    [
        (1, {}),
        (None, {"safety": {"max_ops": 2}}),
        (None, {"safety": {"max_ops": 9, "max_time_s": 0.35}}),
    ],
)
def test_limits_of_the_app_and_of_the_request_are_kept(policy, app_limit, changes):
    fake, policy_url = policy
    fake.latency_s = 0.2 if "max_time_s" in changes.get("safety", {}) else 0.0
    app = TaskApp(Sums, task_id="sums", max_turns=app_limit)
    with serving(app) as url:
        answer = rollout(url, policy_url, turns=6, **changes)
    # The time limit may also fall into a call, which is then an inference error and no reward.
    if answer.status_code == 502:
        assert "max_time_s" in changes["safety"]
    else:
        assert len(fake.requests) < 6
        assert answer.json()["trajectories"][0]["final"]["truncated"] is True


def test_an_inference_error_fails_the_rollout_with_status_and_url(policy):
    fake, policy_url = policy
    fake.script = (Refusal(503, "unavailable", "engine not ready", is_policy_fault=False),)
    with serving(TaskApp(Sums, task_id="sums")) as url:
        answer = rollout(url, policy_url)
    assert answer.status_code == 502
    error = answer.json()["detail"]["error"]
    assert error["code"] == "inference_error"
    assert "answered 503: engine not ready" in error["message"]
    assert f"{policy_url}/rollout/trace_1/v1/chat/completions" in error["message"]
    assert len(fake.requests) == 1


def test_an_inference_error_at_a_later_turn_is_no_reward_either(policy):
    fake, policy_url = policy
    fake.script = ("dunno", Refusal(500, "engine", "broken", is_policy_fault=False))
    with serving(TaskApp(Sums, task_id="sums")) as url:
        assert rollout(url, policy_url).status_code == 502


def test_a_policy_that_cannot_be_reached_is_an_inference_error():
    body = {"run_id": "r", "policy": {"config": {"inference_url": "http://127.0.0.1:9/v1"}}, "ops": ["agent"]}
    with serving(TaskApp(Sums, task_id="sums")) as url:
        answer = httpx.post(f"{url}/rollout", json=body, headers=HEADERS)
    assert answer.status_code == 502
    assert "http://127.0.0.1:9/v1/chat/completions" in answer.text


def test_a_full_context_ends_the_episode_with_its_reward_so_far(policy):
    class Points(Sums):
        def step(self, action: Action) -> StepResult:
            return StepResult("more", reward=0.5)

    fake, policy_url = policy
    fake.script = ("a", Refusal())
    with serving(TaskApp(Points, task_id="points")) as url:
        answer = rollout(url, policy_url, turns=4).json()
    assert answer["outcome_reward"] == 0.5
    last = answer["trajectories"][0]["steps"][-1]
    assert last["truncated"] is True
    assert "context_length_exceeded" in last["info"]["error"]


class Broken(Environment):
    fault: Any = None

    def reset(self, seed: int) -> str:
        return "go"

    def step(self, action: Action) -> StepResult:
        return self.fault()


def _raising() -> StepResult:
    raise ZeroDivisionError("by nought")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (_raising, "step raised ZeroDivisionError: by nought"),
        (lambda: StepResult(reward=float("nan")), "step reward = nan"),
        (lambda: StepResult(reward="1"), "step reward = '1'"),  # type: ignore[arg-type]
        (lambda: StepResult(events={"gold": float("inf")}), "event 'gold' = inf"),
        (lambda: ("go", 1.0), "must return a StepResult"),
        (lambda: StepResult(object(), done=True), "is not JSON"),
        (lambda: StepResult(done=True, info={"x": float("nan")}), "is not JSON"),
        (lambda: StepResult(object()), "render raised TypeError"),
        (lambda: time.sleep(5), "step took too long"),
    ],
)
def test_a_broken_environment_is_named_and_is_no_reward(policy, fault, said):
    _, policy_url = policy

    class Faulty(Broken):
        pass

    Faulty.fault = staticmethod(fault)
    with serving(TaskApp(Faulty, task_id="broken", step_timeout_s=0.3)) as url:
        answer = rollout(url, policy_url)
    assert answer.status_code == 500
    error = answer.json()["detail"]["error"]
    assert error["code"] == "environment_error"
    assert said in error["message"]


def test_events_name_the_completion_that_caused_them_and_do_not_count_in_the_outcome(policy):
    class Eventful(Sums):
        def step(self, action: Action) -> StepResult:
            return StepResult("next", reward=0.25, events=[Event("gold", 2.0, "achievement")])

        def outcome(self) -> float:
            return 7.5

        def close(self) -> None:
            closed.append(True)

    closed: list[bool] = []
    _, policy_url = policy
    with serving(TaskApp(Eventful, task_id="eventful")) as url:
        answer = rollout(url, policy_url).json()
    assert answer["event_rewards"] == [
        {"turn": t, "call": f"chatcmpl-trace_1-{t}", "key": "gold", "value": 2.0, "type": "achievement"}
        for t in (0, 1)
    ]
    assert answer["outcome_reward"] == 7.5
    assert answer["metrics"]["events_score"] == 4.0
    assert closed == [True]


def test_tools_travel_and_their_results_come_back_as_tool_messages(policy):
    class Tooled(Environment):
        tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]

        async def reset(self, seed: int) -> str:
            return "go"

        async def step(self, action: Action) -> StepResult:
            [call] = action.tool_calls
            calls.append((call.name, call.arguments, call.is_valid))
            return StepResult({"seen": 3}, done=len(calls) == 2)

    calls: list[tuple[str, dict[str, Any], bool]] = []
    fake, policy_url = policy

    def script(index: int, _: Any) -> dict[str, Any]:
        text = '{"at": 1}' if index == 0 else "not json"
        call = {"id": f"c{index}", "type": "function", "function": {"name": "look", "arguments": text}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    fake.script = script
    with serving(TaskApp(Tooled, task_id="tooled")) as url:
        answer = rollout(url, policy_url).json()
    assert calls == [("look", {"at": 1}, True), ("look", {}, False)]
    assert fake.requests[0]["tools"] == Tooled.tools
    assert fake.requests[1]["messages"][1]["tool_calls"][0]["id"] == "c0"
    assert fake.requests[1]["messages"][2] == {
        "role": "tool", "tool_call_id": "c0", "name": "look", "content": '{"seen": 3}',
    }  # fmt: skip
    assert [s["tool_calls"][0]["arguments"] for s in answer["trajectories"][0]["steps"]] == [
        {"at": 1},
        "not json",
    ]


def test_concurrent_episodes_share_nothing_and_a_blocking_step_blocks_only_its_own(policy):
    class Blocking(Environment):
        def reset(self, seed: int) -> str:
            self.seed, self.steps = seed, 0
            return f"seed {seed}"

        def step(self, action: Action) -> StepResult:
            self.steps += 1
            together.wait(timeout=20)  # passes only when all episodes are in a step at once
            return StepResult("next", done=self.steps == 2)

        def outcome(self) -> float:
            return self.seed * 10 + self.steps

    n = 12
    together = threading.Barrier(n)
    _, policy_url = policy
    with serving(TaskApp(Blocking, task_id="blocking")) as url, ThreadPoolExecutor(n) as pool:
        outcomes = list(
            pool.map(
                lambda k: rollout(url, policy_url, f"trace_{k}", env={"seed": k}).json()["outcome_reward"],
                range(n),
            )
        )
    assert outcomes == [k * 10 + 2 for k in range(n)]


def test_async_episodes_overlap_while_they_wait_for_the_policy(policy):
    fake, policy_url = policy
    peak = 0

    class Async(Environment):
        async def reset(self, seed: int) -> str:
            return "go"

        async def step(self, action: Action) -> StepResult:
            nonlocal peak
            peak = max(peak, fake.n_in_flight)
            await asyncio.sleep(0)
            return StepResult(done=True)

    fake.latency_s = 0.3
    with serving(TaskApp(Async, task_id="async")) as url, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda k: rollout(url, policy_url, f"trace_{k}"), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert peak > 1


def test_a_dataset_and_a_reward_function_are_enough(policy, tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"prompt": "1 + 1", "answer": "2"}\n\n{"messages": [{"role": "user", "content": "hi"}]}\n'
    )
    fake, policy_url = policy
    fake.script = ("2",)

    async def reward(reply: Action, row: dict[str, Any]) -> float:
        return float(reply == row.get("answer"))

    tasks = SingleTurn(path, reward, splits={"train": [0], "test": [1]}, system="Calculate.")
    with serving(TaskApp(tasks, task_id="rows")) as url:
        right = rollout(url, policy_url, env={"seed": 0}, turns=5).json()
        other = rollout(url, policy_url, "trace_2", env={"seed": 1}).json()
        outside = rollout(url, policy_url, "trace_3", env={"seed": 2})
        taskset = httpx.get(f"{url}/task_info", headers=HEADERS).json()["taskset"]
    assert (right["outcome_reward"], other["outcome_reward"]) == (1.0, 0.0)
    assert right["trajectories"][0]["length"] == 1
    assert fake.requests[1]["messages"] == [
        {"role": "system", "content": "Calculate."},
        {"role": "user", "content": "hi"},
    ]
    assert outside.status_code == 400
    assert "seed 2 is no row" in outside.text
    assert taskset["sizes"] == {"train": 1, "test": 1}
    assert taskset["max_turns"] == 1


def test_task_info_gives_the_taskset_one_seed_or_several():
    app = TaskApp(
        Sums, task_id="sums", version="2.0", description="Add", reward_range=(-1, 1), max_turns=3,
        splits={"train": range(100), "test": range(1000, 1010)},
    )  # fmt: skip
    with serving(app) as url, httpx.Client(base_url=url, headers=HEADERS) as http:
        taskset = http.get("/task_info").json()["taskset"]
        assert taskset["seed_range"] == [0, 99]
        assert taskset["reward_range"] == [-1, 1]
        one = http.get("/task_info?seed=4").json()
        assert one["task"] == {"id": "sums", "name": "sums", "description": "Add", "version": "2.0"}
        assert one["reward_range"] == one["task_metadata"]["reward_range"] == [-1, 1]
        assert one["limits"]["max_turns"] == 3
        for query in ("seed=0&seed=1", "seeds=0&seeds=1"):
            several = http.get(f"/task_info?{query}").json()
            assert [info["task_metadata"]["seed"] for info in several] == [0, 1]
        assert http.get("/task_info?seed=0,1").status_code == 422
        assert http.get("/info").json()["service"]["version"] == "2.0"
        assert http.post("/done").json() == {"ok": True, "service": "sums"}


@pytest.mark.parametrize(
    "headers",
    [
        {"X-API-Key": KEY},
        {"X-API-Keys": f"wrong, {KEY}"},
        {"Authorization": f"Bearer {KEY}"},
        {"X-API-Key": "oldest-key-1234567"},
    ],
)
def test_any_header_with_a_valid_key_opens_the_door(headers):
    with serving(TaskApp(Sums, task_id="sums")) as url:
        answer = httpx.get(f"{url}/health", headers=headers)
    assert answer.json() == {"healthy": True, "auth": {"required": True, "expected_prefix": "enviro..."}}


def test_a_wrong_key_is_a_400_that_tells_prefixes_and_no_more(monkeypatch):
    with serving(TaskApp(Sums, task_id="sums")) as url:
        for path in ("/health", "/info", "/task_info"):
            answer = httpx.get(url + path, headers={"X-API-Key": "a-wrong-key"})
            assert answer.status_code == 400
        error = answer.json()["detail"]["error"]
        assert error["code"] == "unauthorised"
        assert error["allowed_count"] == 3
        assert error["got_lens"] == [11]
        assert KEY not in answer.text
        assert "older-key-12345678" not in answer.text
        assert httpx.get(url).json() == {"status": "ok", "service": "sums"}
        assert httpx.head(url).status_code == 200
        monkeypatch.delenv("ENVIRONMENT_API_KEY")
        monkeypatch.delenv("ENVIRONMENT_API_KEY_ALIASES")
        unset = httpx.get(f"{url}/health", headers=HEADERS)
        assert unset.status_code == 503
        assert unset.json()["detail"]["error"]["code"] == "missing_environment_api_key"


def test_an_open_app_needs_no_key_from_its_own_machine(monkeypatch):
    monkeypatch.delenv("ENVIRONMENT_API_KEY")
    with serving(TaskApp(Sums, task_id="sums", auth="none")) as url:
        assert httpx.get(f"{url}/health").json()["auth"]["required"] is False


@pytest.mark.parametrize(
    "changes",
    [
        {"ops": []},
        {"ops": ["agent", "dance"]},
        {"ops": ["agent", "agent"]},
        {"run_id": None},
        {"on_done": "explode"},
        {"safety": {"max_time_s": 0}},
    ],
)
def test_a_request_that_is_none_is_a_422(policy, changes):
    _, policy_url = policy
    with serving(TaskApp(Sums, task_id="sums")) as url:
        assert rollout(url, policy_url, **changes).status_code == 422


def test_a_request_without_an_inference_url_says_so():
    with serving(TaskApp(Sums, task_id="sums")) as url:
        answer = httpx.post(f"{url}/rollout", json={"run_id": "r", "ops": ["agent"]}, headers=HEADERS)
    assert answer.status_code == 400
    assert "policy.config.inference_url = None" in answer.text


def test_env_config_reaches_a_factory_that_asks_for_it(policy):
    _, policy_url = policy

    class Configured(Sums):
        def __init__(self, config: dict[str, Any]) -> None:
            self.system = config["prompt"]

    fake, policy_url = policy
    with serving(TaskApp(Configured, task_id="configured")) as url:
        rollout(url, policy_url, env={"seed": 1, "config": {"prompt": "Be brief."}})
        missing = rollout(url, policy_url, "trace_2")
    assert fake.requests[0]["messages"][0]["content"] == "Be brief."
    assert missing.status_code == 500
    assert "env_factory raised KeyError" in missing.text


def test_a_full_trace_holds_the_messages_and_a_compact_one_does_not(policy):
    _, policy_url = policy
    with serving(TaskApp(Sums, task_id="sums")) as url:
        full = rollout(url, policy_url, record={"return_trace": True, "trace_format": "full"}).json()["trace"]
        compact = rollout(url, policy_url, "trace_2", record={"return_trace": True}).json()["trace"]
        bare = rollout(url, policy_url, "trace_3", record={"trajectories": False}).json()
    assert full["markov_blanket_message_history"][0]["content"]["role"] == "system"
    assert "markov_blanket_message_history" not in compact
    assert len(compact["lm_calls"]) == 2
    assert (bare["trace"], bare["trajectories"]) == (None, [])


def test_what_init_writes_runs(policy, tmp_path: Path):
    fake, policy_url = policy
    fake.script = adding
    scaffold.write(tmp_path)
    app = load(f"{tmp_path / 'task_app.py'}:app")
    with serving(app) as url:
        answer = rollout(url, policy_url).json()
    assert answer["outcome_reward"] == 1.0
    first = json.loads((tmp_path / "sft.jsonl").read_text().splitlines()[0])
    assert [m["role"] for m in first["messages"]] == ["system", "user", "assistant"]
