"""The vLLM process: its command line, its environment, its start and its end.

It knows no HTTP beyond the port; `engine_client` speaks to it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.contracts.policy import ServeSpec
from headrace.errors import Unavailable

SERVED_NAME = "policy"
MAX_SEQUENCES = 64
LOG_LINES_SHOWN = 12
_PR_SET_PDEATHSIG = 1


def command(spec: ServeSpec, port: int, device: str, python: str = sys.executable) -> list[str]:
    """The engine's command line for a spec. Arguments of the topology win over ours."""
    arguments: dict[str, tuple[str, ...]] = {
        "--model": (spec.model_path,),
        "--served-model-name": (SERVED_NAME,),
        "--host": ("127.0.0.1",),
        "--port": (str(port),),
        "--max-model-len": (str(spec.max_model_len),),
        "--max-num-seqs": (str(MAX_SEQUENCES),),
        "--dtype": (spec.dtype,),
        "--enable-scale-out": (),
        # The default, before temperature, would make the trainer score other numbers than it got.
        "--logprobs-mode": ("processed_logprobs",),
        "--enable-auto-tool-choice": (),
        "--tool-call-parser": ("hermes",),
        "--uvicorn-log-level": ("warning",),
    }
    if device == "cpu":
        arguments |= {
            "--enforce-eager": (),
            "--distributed-executor-backend": ("uni",),
            # A seeded request whose prefill is split would kill the CPU engine.
            "--no-enable-chunked-prefill": (),
        }
    given = {argument.partition("=")[0] for argument in spec.engine_args if argument.startswith("--")}
    line = [python, "-m", "vllm.entrypoints.openai.api_server"]
    for name, values in arguments.items():
        if name not in given:
            line += [name, *values]
    return [*line, *spec.engine_args]


def environment(inherited: Mapping[str, str], device: str) -> dict[str, str]:
    """The engine's environment: ours over what is inherited; our own secrets are left out."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("HEADRACE_")}
    kept |= {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",  # the routes that pause, reload and label weights
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "300",  # longer than the gateway keeps a connection
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    }
    if device == "cpu":
        kept |= {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        }
    return kept


def has_reasoning_parser(spec: ServeSpec) -> bool:
    return any(argument.startswith("--reasoning-parser") for argument in spec.engine_args)


@dataclass
class EngineProcess:
    """One running engine in a process group of its own, with its log."""

    process: subprocess.Popen[bytes]
    log: Path
    log_start: int
    """Where this engine's part of the log begins, in bytes."""

    @classmethod
    def start(cls, line: list[str], variables: dict[str, str], log: Path) -> EngineProcess:
        """Spawn; it dies with this process even if this process is killed."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            log_start = output.tell()
            process = subprocess.Popen(
                line,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        return cls(process, log, log_start)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def last_lines(self) -> str:
        """The end of this engine's log, for the reason of a failure."""
        with self.log.open("rb") as file:
            file.seek(max(self.log_start, self.log.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    def stop(self, grace_s: float = 5.0) -> None:
        """End the whole process group and reap it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(timeout=grace_s)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_for_free_port(port: int, timeout_s: float = 10.0) -> None:
    """Wait until nothing listens on the engine's port, so that no foreign engine answers for ours."""
    deadline = time.monotonic() + timeout_s
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return
        if time.monotonic() > deadline:
            raise Unavailable(
                f"port {port} is taken by another process; stop it or set HEADRACE_ENGINE_PORT to a free port"
            )
        time.sleep(0.1)
