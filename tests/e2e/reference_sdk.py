"""Runs in the reference client's own environment: its SDK classes against one backend.

    python reference_sdk.py BACKEND KEY ARGUMENTS_AS_JSON

Prints one JSON object with what each class made of the answers, or the error that it raised.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from synth_ai.inference import InferenceClient
from synth_ai.learning import FtClient, JobHandle, LearningClient, RlClient
from synth_ai.learning.health import backend_health
from synth_ai.learning.rl import setup_environment_api_key
from synth_ai.learning.sse import stream_events

Told = dict[str, Any]


async def poll(backend: str, key: str, arguments: Told) -> Told:
    """Follow a job to its end with each of the pollers at once."""
    job_id, seen, points = arguments["job_id"], [], []

    async def with_rl_client() -> Told:
        return await RlClient(backend, key).poll_until_terminal(
            job_id, on_event=lambda event: seen.append(event), on_metric=lambda point: points.append(point)
        )

    async def with_job_handle(strict: bool) -> Told:
        return await JobHandle(backend, key, job_id, strict=strict).poll_until_terminal()

    async def with_learning_client() -> Told:
        return await LearningClient(backend, key).poll_until_terminal(job_id)

    told = await asyncio.gather(
        _tried(with_rl_client), _tried(lambda: with_job_handle(True)), _tried(lambda: with_job_handle(False)),
        _tried(with_learning_client),
    )  # fmt: skip
    names = ("rl_client", "job_handle", "job_handle_lenient", "learning_client")
    seqs = [event["seq"] for event in seen if "seq" in event]
    return {
        **dict(zip(names, told, strict=True)),
        "event_types": sorted({event["type"] for event in seen}),
        "seqs_increase": seqs == sorted(set(seqs)),
        "metrics": sorted({point["name"] for point in points}),
    }


async def rl(backend: str, key: str, arguments: Told) -> Told:
    """Create a job with `RlClient`, look at it, start it."""
    client = RlClient(backend, key)
    job = await client.create_job(
        model=arguments["model"], task_app_url=arguments["task_url"],
        trainer={"batch_size": 4, "group_size": 4}, inline_config=arguments.get("config"),
    )  # fmt: skip
    job_id = job["job_id"]
    return {
        "job_id": job_id,
        "started": await client.start_job_if_supported(job_id),
        "job": await client.get_job(job_id),
        "events": await client.get_events(job_id),
        "metrics": await client.get_metrics(job_id),
    }


async def sft(backend: str, key: str, arguments: Told) -> Told:
    """Upload and create with `FtClient`, read with `LearningClient`."""
    client, learning = FtClient(backend, key), LearningClient(backend, key)
    file_id = await client.upload_training_file(arguments["file"])
    other_id = await learning.upload_training_file(arguments["file"])
    job = await client.create_sft_job(
        model=arguments["model"], training_file_id=file_id,
        hyperparameters={"n_epochs": 1, "per_device_batch": 2, "sequence_length": 128},
        metadata={"effective_config": {"compute": {"gpu_type": "H100", "gpu_count": 1}}},
    )  # fmt: skip
    second = await learning.create_job(
        training_type="sft_offline", model=arguments["model"], training_file_id=other_id,
        hyperparameters={"n_epochs": 1}, metadata={"effective_config": {"compute": {"gpu_type": "H100"}}},
    )  # fmt: skip
    job_id = job["job_id"]
    return {
        "job_id": job_id,
        "second": second["job_id"],
        "started": await client.start_job(job_id),
        "job": await learning.get_job(job_id),
        "events": await learning.get_events(job_id),
        "metrics": await learning.get_metrics(job_id, name="train.loss", after_step=-1),
        "timeline": await learning.get_timeline(job_id),
        "models": await learning.list_fine_tuned_models(),
    }


async def other(backend: str, key: str, arguments: Told) -> Told:
    """Health, environment key, events as a stream."""
    streamed: list[Told] = []
    stored = await asyncio.to_thread(setup_environment_api_key, backend, key, arguments["environment_key"])
    await stream_events(backend, key, arguments["job_id"], seconds=1, on_event=streamed.append)
    return {"health": await backend_health(backend, key), "stored": stored, "streamed": streamed}


async def ask(backend: str, key: str, arguments: Told) -> Told:
    """One chat completion of a trained model."""
    client = InferenceClient(backend, key, timeout=arguments.get("timeout_s", 120))
    return await client.create_chat_completion(
        model=arguments["model"], messages=arguments["messages"], max_tokens=12
    )


async def _tried(action: Callable[[], Awaitable[Told]]) -> Told:
    try:
        return await action()
    except Exception as error:  # whatever a class raises is what the test wants to know
        return {"error": f"{type(error).__name__}: {error}"}


SCENES = {"poll": poll, "rl": rl, "sft": sft, "other": other, "ask": ask}


def main(backend: str, key: str, given: str) -> None:
    told = {}
    for name, arguments in json.loads(given).items():
        told[name] = asyncio.run(_tried(lambda name=name, a=arguments: SCENES[name](backend, key, a)))
    print("RESULT " + json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
