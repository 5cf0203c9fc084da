"""An episode in the contract's response shape, with `event_rewards` and `outcome_reward` of our own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from headrace.task_app.episode import Episode, Turn
from headrace.task_app.wire import RolloutRequest


def rollout_response(request: RolloutRequest, episode: Episode, env_name: str) -> dict[str, Any]:
    """The body of a 200 from `/rollout`; JSON as long as the author's observations and infos are."""
    inference_url = str(request.policy.config.get("inference_url"))
    cid = request.correlation_id
    events = event_rewards(episode)
    return {
        "run_id": request.run_id,
        "trajectories": [_trajectory(request, episode, env_name, inference_url)]
        if request.record.trajectories
        else [],
        "branches": {},
        "metrics": {
            "episode_returns": [episode.outcome],
            "mean_return": episode.outcome,
            "num_steps": len(episode.turns),
            "num_episodes": 1,
            "outcome_score": episode.outcome,
            "events_score": float(sum(event["value"] for event in events)),
            "details": {"n_calls": episode.n_calls},
        },
        "event_rewards": events,
        "outcome_reward": episode.outcome,
        "aborted": False,
        "ops_executed": episode.n_ops,
        "trace_correlation_id": cid,
        "trace": _trace(request, episode) if request.record.return_trace else None,
        "pipeline_metadata": {
            "inference_url": inference_url,
            "trace_correlation_id": cid,
            "mode": request.mode,
        },
    }


def event_rewards(episode: Episode) -> list[dict[str, Any]]:
    """`[{turn, call, key, value, type}]`; `call` is the id of the completion that caused the event."""
    return [
        {
            "turn": index,
            "call": turn.reply.completion_id if turn.reply else None,
            "key": event.key,
            "value": float(event.value),
            "type": event.type,
        }
        for index, turn in enumerate(episode.turns)
        for event in turn.result.event_list
    ]


def _trajectory(
    request: RolloutRequest, episode: Episode, env_name: str, inference_url: str
) -> dict[str, Any]:
    return {
        "env_id": request.env.env_id or request.env.env_name or env_name,
        "policy_id": request.policy.policy_id or request.policy.policy_name or "policy",
        "steps": [_step(index, turn, inference_url) for index, turn in enumerate(episode.turns)],
        "final": {
            "observation": episode.observation,
            "reward": episode.outcome,
            "done": episode.is_done,
            "truncated": episode.is_truncated,
        },
        "length": len(episode.turns),
        "inference_url": inference_url,
        "trace_correlation_id": request.correlation_id,
    }


def _step(index: int, turn: Turn, inference_url: str) -> dict[str, Any]:
    reply, result = turn.reply, turn.result
    meta: dict[str, Any] = {"turn_index": index, "inference_url": inference_url}
    if reply is not None:
        meta["raw_response"] = {
            "id": reply.completion_id, "model": reply.model, "finish_reason": reply.finish_reason,
        }  # fmt: skip
        meta["usage"] = reply.usage
        meta["timing"] = {"policy_s": round(reply.latency_s, 6)}
    info: dict[str, Any] = {
        **result.info,
        "action": str(reply.action) if reply else None,
        "invalid_action": result.invalid,
        "latency_ms": round(turn.latency_s * 1000, 3),
        "meta": meta,
    }
    if turn.error is not None:
        info["error"] = turn.error
    return {
        "obs": {"observation": turn.observation},
        "tool_calls": [
            {"tool_name": call.name, "arguments": call.arguments if call.is_valid else call.raw}
            for call in (reply.action.tool_calls if reply else ())
        ],
        "reward": float(result.reward),
        "done": result.done,
        "truncated": result.truncated,
        "info": info,
    }


def _trace(request: RolloutRequest, episode: Episode) -> dict[str, Any]:
    replies = [turn.reply for turn in episode.turns if turn.reply is not None]
    trace: dict[str, Any] = {
        "session_id": request.run_id,
        "created_at": datetime.now(UTC).isoformat(),
        "metadata": {"mode": request.mode, "seed": request.env.seed},
        "events_count": len(event_rewards(episode)),
        "messages_count": len(episode.messages),
        "lm_calls": [
            {
                "turn": index,
                "model": reply.model,
                "prompt_tokens": reply.usage.get("prompt_tokens"),
                "completion_tokens": reply.usage.get("completion_tokens"),
                "latency_ms": round(reply.latency_s * 1000, 3),
            }
            for index, reply in enumerate(replies)
        ],
    }
    if request.record.trace_format != "compact":
        trace["markov_blanket_message_history"] = [
            {"message_type": message["role"], "content": message} for message in episode.messages
        ]
    return trace
