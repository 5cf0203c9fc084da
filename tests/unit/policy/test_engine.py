"""The engine's command line, environment and answers."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.contracts.policy import PolicyVersion, ServeSpec
from headrace.errors import Unavailable
from headrace_policy.engine import EngineProcess, command, environment, has_reasoning_parser
from headrace_policy.engine_client import parse_generated

SPEC = ServeSpec(
    serve_id="s", job_id="j", model_path="/models/tiny", architecture_hash="a", max_model_len=512,
    version=PolicyVersion(timeline=1, n=0), fence=1,
)  # fmt: skip


def test_the_cpu_command_line_is_the_measured_one():
    assert command(SPEC, 8764, "cpu", "python") == [
        "python", "-m", "vllm.entrypoints.openai.api_server",
        "--model", "/models/tiny", "--served-model-name", "policy",
        "--host", "127.0.0.1", "--port", "8764",
        "--max-model-len", "512", "--max-num-seqs", "64", "--dtype", "float32",
        "--enable-scale-out", "--logprobs-mode", "processed_logprobs",
        "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--uvicorn-log-level", "warning",
        "--enforce-eager", "--distributed-executor-backend", "uni", "--no-enable-chunked-prefill",
    ]  # fmt: skip


def test_a_gpu_gets_none_of_the_cpu_flags():
    line = command(SPEC, 8764, "cuda", "python")
    assert not {"--enforce-eager", "uni", "--no-enable-chunked-prefill"} & set(line)
    assert "VLLM_CPU_KVCACHE_SPACE" not in environment({}, "cuda")


def test_arguments_of_the_topology_replace_ours():
    spec = SPEC.model_copy(update={"engine_args": ("--tool-call-parser", "llama3_json", "--max-num-seqs=8")})
    line = command(spec, 1, "cpu", "python")
    assert line.count("--tool-call-parser") == 1
    assert "hermes" not in line
    assert "--max-num-seqs" not in line
    assert line[-3:] == ["--tool-call-parser", "llama3_json", "--max-num-seqs=8"]
    assert not has_reasoning_parser(spec)
    assert has_reasoning_parser(SPEC.model_copy(update={"engine_args": ("--reasoning-parser", "qwen3")}))


def test_the_engine_sees_none_of_our_secrets():
    variables = environment({"PATH": "/bin", "HEADRACE_SECRET_KEY": "x", "OMP_NUM_THREADS": "8"}, "cpu")
    assert "HEADRACE_SECRET_KEY" not in variables
    assert variables["PATH"] == "/bin"
    assert variables["OMP_NUM_THREADS"] == "1"
    assert variables["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] == "300"
    assert variables["VLLM_SERVER_DEV_MODE"] == "1"


def reply(**changes: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "token_ids": [5, 6],
        "logprobs": {"content": [{"token_id": 5, "logprob": -1.5}, {"token_id": 6, "logprob": -0.25}]},
        "finish_reason": "stop",
        "weight_versions": [{"version": "1.0", "start": 0, "end": 2}],
    }
    return {"choices": [choice | changes]}


def test_a_whole_answer_is_taken_as_it_is():
    sampled = parse_generated(reply())
    assert list(sampled.token_ids) == [5, 6]
    assert list(sampled.logprobs) == [-1.5, -0.25]
    assert sampled.finish_reason == "stop"


@pytest.mark.parametrize(
    "changes",
    [
        {"logprobs": None},
        {"logprobs": {"content": [{"token_id": 5, "logprob": -1.5}]}},
        {"logprobs": {"content": [{"token_id": 6, "logprob": -1.5}, {"token_id": 5, "logprob": -1}]}},
        {"logprobs": {"content": [{"token_id": 5, "logprob": float("nan")}, {"token_id": 6, "logprob": -1}]}},
        {"logprobs": {"content": [{"token_id": 5, "logprob": None}, {"token_id": 6, "logprob": -1}]}},
        {"logprobs": {"content": [{"token_id": 5, "logprob": -9999.0}, {"token_id": 6, "logprob": -1}]}},
        {"finish_reason": "abort"},
        {"finish_reason": None},
        {"token_ids": [], "logprobs": {"content": []}},
        {"weight_versions": None},
    ],
)
def test_an_answer_that_lacks_anything_is_an_engine_error_and_never_padded(changes: dict[str, Any]):
    with pytest.raises(Unavailable):
        parse_generated(reply(**changes))


def test_an_answer_without_choices_is_an_engine_error():
    with pytest.raises(Unavailable):
        parse_generated({})


def test_stopping_ends_the_whole_group_and_the_log_tells_this_engines_end(tmp_path: Path):
    log = tmp_path / "logs" / "engine.log"
    log.parent.mkdir()
    log.write_text("of an earlier engine\n")
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('child', child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    engine = EngineProcess.start([sys.executable, "-c", code], {}, log)
    while "child" not in engine.last_lines():
        assert engine.is_alive
    child = int(engine.last_lines().split()[1])
    engine.stop(grace_s=0.2)
    assert not engine.is_alive
    assert "earlier" not in engine.last_lines()
    deadline = time.monotonic() + 10  # a killed process ends when the kernel gets to it
    while not (has_ended := has_gone(child)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert has_ended


def has_gone(pid: int) -> bool:
    """Whether a process of which nobody has asked yet is no more than a zombie."""
    try:
        return "zombie" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
