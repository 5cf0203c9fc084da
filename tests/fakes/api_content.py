"""Jobs, metrics and rollouts for the fake API: a small stack in the middle of its work."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.fakes.api import FakeApi

Json = dict[str, Any]

RL_JOB = "job_5f0c21b79ae34d10"
HOSTILE = '<script>document.title = "owned"</script><img src=x onerror="document.title=\'owned\'">'


NOTES = [
    {"type": "rl.config.not_used", "message": "accepted without effect: lora.r", "keys": ["lora.r"]},
    {"type": "rl.model.mapped", "message": f"walk-base stands for /models/{HOSTILE}", "keys": []},
]


def ago(**delta: float) -> str:
    return (datetime.now(UTC) - timedelta(**delta)).isoformat()


def job(job_id: str, type: str = "rl", status: str = "running", **more: Any) -> Json:
    """A job object with every key that the API gives."""
    base: Json = {
        "job_id": job_id, "id": job_id, "type": type, "job_type": type, "status": status,
        "pool": "local-cpu", "model": "walk-base", "model_id": None, "fine_tuned_model": None,
        "linked_job_id": None, "iteration": 0, "iterations": 0, "timeline": 1, "paused_reason": None,
        "waiting_reason": None, "cancel_requested": False, "error": None, "tags": {}, "data": {},
        "metadata": {}, "result": {}, "notes": [], "created_at": ago(minutes=4), "updated_at": ago(seconds=3),
        "started_at": ago(minutes=3), "finished_at": None,
    }  # fmt: skip
    return base | more


def full_stack() -> FakeApi:
    """Jobs of each kind and status, one RL job with metrics, events, checkpoints and rollouts."""
    state = FakeApi()
    _add_jobs(state)
    _add_metrics(state)
    _add_events(state)
    _add_configs(state)
    for group in range(8):
        for member in range(8):
            detail = rollout_detail(RL_JOB, 31, group, member)
            state.rollouts[detail["rollout"]["rollout_id"]] = detail
    return state


def _add_jobs(state: FakeApi) -> None:
    model = "ft:walk-base:job_83c1d6"
    sft = "job_83c1d6f02b7749aa"
    report = {
        "success": 0.887, "n": 400, "mean_reward": 0.882,
        "baseline": {"success": 0.3275, "n": 400, "mean_reward": 0.31},
        "difference": {"mean": 0.5595, "low": 0.511, "high": 0.607},
        "greedy": {"baseline": 0.34, "trained": 0.93},
    }  # fmt: skip
    rows = [
        job(RL_JOB, iteration=31, iterations=40, model=model, tags={"recipe": "walk", "seed": 7}, notes=NOTES),
        job("job_c60d4be1f2aa7719", "eval", "queued", model=model, iterations=400, created_at=ago(minutes=1),
            started_at=None, waiting_reason=f"waits for the engine of local-cpu, which {RL_JOB} holds"),
        job("job_17e2aa90c4d15b36", status="running", pool="gpu-1", model="Qwen/Qwen3-0.6B", iteration=12,
            iterations=200, paused_reason="the task app at http://10.0.0.7:8001 answered 503 three times",
            tags={"team": "agents"}, created_at=ago(hours=2), started_at=ago(hours=2)),
        job("job_9d44e07a113c5f80", "eval", "succeeded", model=model, iteration=400, iterations=400,
            result=report, created_at=ago(minutes=16), started_at=ago(minutes=16), finished_at=ago(minutes=14)),
        job(sft, "sft", "succeeded", iteration=90, iterations=90, model_id=model, fine_tuned_model=model,
            created_at=ago(minutes=22), started_at=ago(minutes=22), finished_at=ago(minutes=20)),
        job("job_02bb7c5d9e6f4a13", status="failed", iteration=3, iterations=40, created_at=ago(days=1),
            started_at=ago(days=1), finished_at=ago(hours=23),
            error="GET /task_info of http://127.0.0.1:8001 answered 401: store the task app's key with "
            "`headrace keys`, then submit again."),
        job("job_4c19f3e8ad50b762", status="cancelled", iteration=8, iterations=60, created_at=ago(days=2),
            started_at=ago(days=2), finished_at=ago(days=2), tags={"note": HOSTILE}),
    ]  # fmt: skip
    state.jobs = {row["job_id"]: row for row in rows}
    state.rewards[RL_JOB] = [
        {
            "iteration": n,
            "purpose": "train",
            "n": 128,
            "reward_mean": reward_at(n),
            "return_mean": reward_at(n) + 0.1,
            "std": 0.2,
            "min": 0.0,
            "max": 1.0,
            "events": {
                "goal": {"frequency": reward_at(n), "mean": 1.25},
                HOSTILE: {"frequency": 0.25, "mean": -0.5},
            },
        }
        for n in range(1, 32)
    ]
    state.checkpoints[RL_JOB] = [
        {
            "checkpoint_id": f"ckpt_{n}", "timeline": 1, "version": n, "iteration": n, "step": n,
            "path": f"jobs/{RL_JOB}/checkpoints/1.{n}", "has_trainer_state": n > 25, "is_kept": n % 10 == 0,
            "metrics": {"reward.mean": reward_at(n), "eval.success": min(1.0, reward_at(n) + 0.02)},
            "created_at": ago(minutes=(31 - n) / 10 + 0.1),
        }
        for n in (30, 25, 20, 10)
    ]  # fmt: skip


def reward_at(step: int) -> float:
    """A learning curve: slow, then fast, then flat, with noise that is the same each time."""
    noise = random.Random(step).gauss(0, 0.025)
    return round(min(0.99, max(0.02, 0.28 + 0.62 / (1 + math.exp(-(step - 14) / 4)) + noise)), 4)


def rl_points(step: int) -> dict[str, float]:
    draw, reward = random.Random(1000 + step), reward_at(step)
    infra = 1 if step in (9, 22) else 0
    failed = max(0, round(6 * math.exp(-step / 6) + draw.uniform(-0.5, 0.5)))
    return {
        "reward.mean": reward, "reward.min": max(-0.1, reward - 0.42 + step / 200), "reward.max": 1.0,
        "reward.std": 0.2, "success.rate": max(0.0, reward - 0.03),
        "train.loss": 0.04 * math.exp(-step / 12) * draw.uniform(0.3, 1.5) - 0.004,
        "train.grad_norm": 0.35 + 0.5 * math.exp(-step / 8) * draw.uniform(0.6, 1.4),
        "train.entropy": 0.35 + 1.0 * math.exp(-step / 11) * draw.uniform(0.95, 1.05),
        "train.clip_low": 0.004 * draw.uniform(0.4, 1.6), "train.clip_high": 0.007 * draw.uniform(0.4, 1.6),
        "mismatch.k3": 2e-9 * draw.uniform(0.5, 2), "probe.max_abs": 3e-6 * draw.uniform(0.5, 1.5),
        "staleness.mean": 0.0, "staleness.max": 0.0,
        "policy.tokens_per_s": 940 + draw.uniform(-90, 90), "latency.agent_s": 0.19 + draw.uniform(-0.02, 0.03),
        "latency.agent_p95_s": 0.31, "latency.env_s": 0.002, "latency.env_p95_s": 0.004,
        "rollouts.truncated_share": 0.3 * math.exp(-step / 9), "stops.length_share": 0.1 * math.exp(-step / 9),
        "return.mean": reward + 0.1, "tokens.prompt_per_episode": 118.0,
        "events.goal.frequency": reward, "events.goal.mean": reward, "events.wasted_step.frequency": 1 - reward,
        "events.wasted_step.mean": -0.1,
        "health.invalid_action_rate": 0.22 * math.exp(-step / 5) + 0.004 * draw.random(),
        "rollouts.scored": 128 - failed - infra, "rollouts.policy_failed": failed,
        "rollouts.infra_failed": infra, "rollouts.cancelled": 0,
        "tokens.sampled_per_episode": 13 - step / 8 + draw.uniform(-0.5, 0.5),
        "tokens.sampled_max": 24 + draw.randint(-2, 2),
        "time.rollout_s": 2.4 + draw.uniform(-0.3, 0.4), "time.train_s": 1.5 + draw.uniform(-0.1, 0.1),
        "time.publish_s": 0.12, "time.checkpoint_s": 0.2,
    }  # fmt: skip


def _add_metrics(state: FakeApi) -> None:
    for step in range(1, 32):
        add_step(state, RL_JOB, rl_points(step))
    for step in range(1, 13):
        values = rl_points(step)
        add_step(state, "job_17e2aa90c4d15b36", {"reward.mean": values["reward.mean"] - 0.2}, step)
        add_step(state, "job_4c19f3e8ad50b762", {"reward.mean": 0.4 - step / 60}, step)
    for step in range(1, 91):
        loss = 0.35 + 2.4 * math.exp(-step / 18) + random.Random(step).uniform(-0.05, 0.05)
        values = {"train.loss": loss, "train.grad_norm": 1.2 * math.exp(-step / 40)}
        values |= {"train.learning_rate": 3e-4 * (1 - step / 91), "train.tokens": 4096.0}
        if step % 15 == 0:
            values["val.loss"] = loss + 0.06
        add_step(state, "job_83c1d6f02b7749aa", values, step)
    eval_values = {"eval.reward_mean": 0.882, "eval.success": 0.887, "eval.n": 400.0}
    add_step(state, "job_9d44e07a113c5f80", eval_values, 1)


def add_step(state: FakeApi, job_id: str, values: dict[str, float], step: int | None = None) -> None:
    """Append a step, by default the one after the last."""
    rows = state.points.setdefault(job_id, [])
    at = step if step is not None else (rows[-1]["step"] + 1 if rows else 1)
    rows += [{"name": name, "step": at, "value": value, "phase": None} for name, value in values.items()]


def _add_events(state: FakeApi) -> None:
    lines = [
        ("rl.job.created", "Job created: 40 iterations of 16 groups of 8", "info"),
        ("rl.policy.starting", "The engine loads walk-base (float32)", "info"),
        ("rl.policy.ready", "The engine serves version 1.0", "info"),
        ("rl.train.started", "Training on local-cpu, timeline 1", "info"),
    ]
    for n in range(1, 32):
        lines.append(("rl.train.step", f"Iteration {n} of 40: reward {reward_at(n):.3f}", "info"))
        if n in (9, 22):
            lines.append(
                (
                    "rl.rollout.again",
                    "One rollout was ordered again: the task app closed the connection",
                    "warning",
                )
            )
        if n % 10 == 0:
            lines.append(("rl.checkpoint.saved", f"Checkpoint 1.{n} saved", "info"))
    for type, message, level in lines:
        state.add_event(RL_JOB, type, message, level)
    for i, event in enumerate(state.events[RL_JOB]):
        event["created_at"] = ago(seconds=4 + 4.6 * (len(lines) - 1 - i))
    state.add_event("job_02bb7c5d9e6f4a13", "rl.job.failed", "The task app refused its key", "error")


def _add_configs(state: FakeApi) -> None:
    toml = '[algorithm]\ntype = "online"\nmethod = "policy_gradient"\nvariety = "grpo"\n\n[model]\n'
    toml += 'source = "ft:walk-base:job_83c1d6"\n\n[training]\niterations_per_epoch = 40\nbatch_size = 16\n'
    toml += "group_size = 8\nlearning_rate = 2e-3\n"
    submitted = {
        "model": {"source": "ft:walk-base:job_83c1d6"},
        "training": {"batch_size": 16, "group_size": 8},
    }
    resolved = submitted | {"policy": {"temperature": 1.0, "max_staleness": 0}}
    for job_id in state.jobs:
        state.configs[job_id] = {"submitted": submitted, "toml": toml, "resolved": resolved}


def rollout_detail(job_id: str, iteration: int, group: int, member: int) -> Json:
    """One rollout of two turns with its tokens, rewards and attempts."""
    draw = random.Random(f"{iteration}.{group}.{member}")
    rollout_id = f"{job_id}.train.i{iteration}.g{group}.m{member}"
    session, seed = f"trace_{draw.getrandbits(128):032x}", 41_000 + group
    status = (
        "infra_failed"
        if (group, member) == (2, 5)
        else "policy_failed"
        if (group, member) == (1, 2)
        else "scored"
    )
    reward = None if status == "infra_failed" else round(draw.choice([1.0, 1.0, 1.0, 0.5, 0.0]), 2)
    row: Json = {
        "rollout_id": rollout_id, "job_id": job_id, "purpose": "train", "iteration": iteration,
        "group_index": group, "member": member, "seed": seed, "timeline": 1, "status": status,
        "session_id": session, "outcome_reward": reward, "event_reward_sum": 0.2, "n_turns": 2,
        "n_prompt_tokens": 62, "n_sampled_tokens": 13, "min_version": f"1.{iteration - 1}",
        "max_version": f"1.{iteration - 1}", "reason": None, "created_at": ago(seconds=30),
        "finished_at": ago(seconds=20 - draw.random() * 5),
    }  # fmt: skip
    attempts = [
        {"session_id": session, "attempt": 1, "timeline": 1, "outcome": status, "verdict": "accepted",
         "reason": None, "boundary": None, "started_at": ago(seconds=29), "finished_at": ago(seconds=20)},
    ]  # fmt: skip
    if status == "policy_failed":
        row["reason"] = "the prompt of turn 2 is longer than the context of 128 tokens"
    if status == "infra_failed":
        row["reason"] = attempts[0]["reason"] = "the task app closed the connection after 2 of 2 turns"
        attempts[0] |= {"boundary": "task_app", "verdict": "record"}
    events = [
        {
            "session_id": session,
            "position": i,
            "turn": i,
            "call": i,
            "key": key,
            "value": value,
            "type": "sparse",
        }
        for i, (key, value) in enumerate((("closer", 0.3), ("wasted step", -0.1)))
    ]
    return {"rollout": row, "attempts": attempts, "event_rewards": events,
            "trajectory": _trajectory(row, session, reward, draw)}  # fmt: skip


def _trajectory(row: Json, session: str, reward: float | None, draw: random.Random) -> Json:
    first = [
        {
            "role": "system",
            "content": "You walk on a line of 9 cells. Answer with moves: left, right or stop.",
        },
        {"role": "user", "content": "You are at 2. The goal is 6.\nMoves so far: none"},
    ]
    replies = ["right right right", "right stop"]
    second = {"role": "user", "content": "You are at 5. The goal is 6.\nMoves so far: right right right"}
    calls = []
    for i, text in enumerate(replies):
        messages = first if i == 0 else [*first, {"role": "assistant", "content": replies[0]}, second]
        calls.append({
            "index": i, "call_id": f"chatcmpl-{i}", "parent": None if i == 0 else 0, "split_reason": None,
            "temperature": 1.0, "seed": draw.getrandbits(31), "finish_reason": "stop", "messages": messages,
            "reply": {"role": "assistant", "content": text}, "is_trainable": True, "untrainable_reason": None,
            "error": None, "tools": None, "started_at": 0.0, "latency_s": draw.uniform(0.1, 0.3),
            "tokens": _tokens(text, row["min_version"], draw),
        })  # fmt: skip
    ops = [
        {"index": i, "observation": o, "action": a, "reward": r, "is_done": i == 1, "is_truncated": False,
         "is_invalid_action": False, "latency_s": 0.002, "info": {}}
        for i, (o, a, r) in enumerate(((first[1]["content"], replies[0], 0.3), (second["content"], replies[1], -0.1)))
    ]  # fmt: skip
    return {
        "schema_version": 1, "job_id": row["job_id"], "rollout_id": row["rollout_id"], "session_id": session,
        "attempt": 1, "timeline": 1, "purpose": "train", "iteration": row["iteration"],
        "group": row["group_index"], "member": row["member"], "seed": row["seed"], "outcome": row["status"],
        "reason": row["reason"], "boundary": None, "is_truncated": False,
        "rewards": {"outcome_reward": reward, "event_rewards": [], "source": "metrics.outcome_reward",
                    "disagreement": None},
        "ops": ops, "final_observation": "You are at 6. That is the goal.", "details": {},
        "task_app": {"task_id": "walk", "version": "1.0.0"}, "calls": calls, "started_at": 0.0, "finished_at": 1.0,
    }  # fmt: skip


def _tokens(text: str, version: str, draw: random.Random) -> list[Json]:
    pieces = [(" " if i else "") + word for i, word in enumerate(text.split())]
    return [
        {"id": 100 + len(piece), "text": piece, "logprob": -draw.expovariate(1.4), "version": version}
        for piece in [*pieces, "<|im_end|>"]
    ]
