"""The reference client, `synth-ai` as published, in a virtual environment of its own.

Its click and Celery's do not fit one environment. `HEADRACE_REFERENCE_VENV` names an environment that
has it, or the folder in which one is made (1.4 GB, some minutes); without it one is made for the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

VERSION = "0.2.16"


@dataclass(frozen=True)
class ReferenceClient:
    """Runs the client with a home of its own, so that it finds nobody's keys and leaves nothing behind."""

    venv: Path
    home: Path

    @property
    def python(self) -> str:
        return str(self.venv / "bin" / "python")

    @property
    def environ(self) -> dict[str, str]:
        """Variables of the processes; what the shell has of anyone's keys or addresses stays out."""
        datasets = self.home / "datasets"
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "MATH_MODAL_DATASET_DIR": str(datasets),  # else it makes a folder at the root of the disk
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, *arguments: str, cwd: Path, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """`synth-ai ARGUMENTS` without a terminal; stderr is in stdout."""
        return subprocess.run(
            [str(self.venv / "bin" / "synth-ai"), *arguments],
            cwd=cwd, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def script(
        self, program: Path, *arguments: str, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """A Python program in the client's environment; stdout is kept apart from stderr."""
        return subprocess.run(
            [self.python, str(program), *arguments],
            cwd=self.home, env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip


def provide(scratch: Path) -> ReferenceClient:
    """The client, installed where it is not yet."""
    given = os.environ.get("HEADRACE_REFERENCE_VENV")
    venv = Path(given).expanduser().resolve() if given else scratch / "reference-venv"
    if not (venv / "bin" / "synth-ai").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        install = [str(venv / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, f"synth-ai=={VERSION}"], check=True)
    home = scratch / "reference-home"
    (home / "datasets").mkdir(parents=True, exist_ok=True)
    return ReferenceClient(venv, home)
