"""Submit a job with the `headrace` command, follow it over the API."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from examples.demo.stack import ROOT, Stack
from headrace.client import ApiClient
from headrace.errors import JobFailed, Unavailable

POLL_S = 1.0
TERMINAL = ("succeeded", "failed", "cancelled")

Job = dict[str, Any]
Point = dict[str, Any]


def submit(stack: Stack, command: str, config: Path, *options: str) -> str:
    """`headrace train` or `headrace eval` as a user calls it; returns the job's id."""
    arguments = (command, "--config", str(config), *options, "--json", "--no-poll")
    done = subprocess.run(
        [sys.executable, "-m", "headrace_cli", *arguments],
        cwd=ROOT, env=stack.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise JobFailed(f"headrace {command} --config {config.name} failed: {done.stderr.strip()}")
    return _job_id(done.stdout)


def with_baseline(config: Path, baseline: str, folder: Path) -> Path:
    """A copy of an evaluation config that names the evaluation job to compare with."""
    return with_key(
        config, "evaluation_job", "baseline", f'"{baseline}"', folder / f"{config.stem}_{baseline}.toml"
    )


def with_key(config: Path, section: str, key: str, value: str, copy: Path) -> Path:
    """A copy of a config with one more key, its value as TOML, at the head of a section."""
    header = f"[{section}]\n"
    copy.write_text(config.read_text().replace(header, f"{header}{key} = {value}\n", 1))
    return copy


def _job_id(output: str) -> str:
    """From the last JSON line that names a job."""
    for line in reversed(output.splitlines()):
        if line.startswith("{") and "job_id" in (told := json.loads(line)):
            return told["job_id"]
    raise JobFailed(f"the command named no job: {output.strip()[-200:]!r}")


def wait(api: ApiClient, job_ids: Sequence[str], on_points: Callable[[list[Point], Job], None]) -> list[Job]:
    """Poll until every job has ended; `on_points` gets each job's new metric points, and the job itself.

    Raises JobFailed with a failed job's own reason.
    """
    seen = dict.fromkeys(job_ids, 0)
    ended: dict[str, Job] = {}
    while len(ended) < len(job_ids):
        for job_id in job_ids:
            if job_id in ended:
                continue
            job = _get(api, job_id)
            points = api.metrics(job_id, after_step=seen[job_id])
            seen[job_id] = max([seen[job_id], *(point["step"] for point in points)])
            on_points(points, job)
            if job["status"] in TERMINAL:
                ended[job_id] = _succeeded(job)
        time.sleep(POLL_S)
    return [ended[job_id] for job_id in job_ids]


def _get(api: ApiClient, job_id: str, attempts: int = 5) -> Job:
    """One answer that is lost to a busy machine does not end a demo of minutes."""
    for attempt in range(attempts):
        try:
            return api.get_job(job_id)
        except Unavailable:
            if attempt == attempts - 1:
                raise
            time.sleep(POLL_S)
    raise AssertionError("unreachable")


def _succeeded(job: Job) -> Job:
    if job["status"] != "succeeded":
        raise JobFailed(
            f"{job['type']} job {job['job_id']} {job['status']}: {job['error'] or 'no reason given'}"
        )
    return job
