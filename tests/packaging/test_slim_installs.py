"""Each service alone: an empty environment, a partial copy of the tree, its own extra, and every module of it.

Slow: each case makes a virtual environment and installs into it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]
BASE = ("artifacts", "config", "contracts", "rl", "client", "clock", "errors", "ids", "log", "settings")
"""What of `headrace` runs without any extra."""

IMPORT_ALL = """
import importlib, pkgutil, sys
package, parts, own = sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(",")

def walk(name):
    yield name
    module = importlib.import_module(name)
    for found in pkgutil.iter_modules(getattr(module, "__path__", []), name + "."):
        if not found.name.endswith(".__main__") and ".migrations." not in found.name:
            yield from walk(found.name)

names = [*walk(package)] if package else []
for part in parts:
    names += walk("headrace." + part)
for name in names:
    importlib.import_module(name)
heavy = {"torch", "vllm"} & set(sys.modules) - set(own)
assert not heavy, f"{heavy} came in"
print(len(names))
"""


@dataclass(frozen=True)
class Slim:
    """One install: its extra, its folder, the parts of `headrace` that belong to it, its heavy libraries."""

    extra: str
    folder: str
    parts: tuple[str, ...]
    own: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        return f"headrace_{Path(self.folder).name}" if self.folder else ""


CASES = [
    Slim("", "cli", ()),
    Slim("task-app", "", ("task_app",)),
    Slim("api", "services/api", ("store", "queue")),
    Slim("rollout-worker", "services/rollout_worker", ("queue",)),
    Slim("policy", "services/policy", ("queue", "render")),
    Slim("trainer", "services/trainer", ("store", "queue", "render"), own=("torch",)),
    Slim("dashboard", "services/dashboard", ()),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.extra or "cli")
def test_a_service_installs_and_imports_alone(case: Slim, tmp_path: Path):
    tree, venv = tmp_path / "tree", tmp_path / "venv"
    tree.mkdir()
    shutil.copy(REPOSITORY / "pyproject.toml", tree)
    for folder in ("shared", case.folder):
        if folder:
            shutil.copytree(REPOSITORY / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    install(venv, f"{tree}[{case.extra}]" if case.extra else str(tree), own_torch="torch" in case.own)
    ended = subprocess.run(
        [
            *(str(venv / "bin" / "python"), "-P", "-c", IMPORT_ALL),
            *(case.package, ",".join((*BASE, *case.parts)), ",".join(case.own)),
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout.split()[-1]) > len(BASE)


def install(venv: Path, target: str, *, own_torch: bool) -> None:
    """Plain pip first, as `make setup` does; where the CPU torch is not found there, its own index too."""
    command = [
        *(str(venv / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"),
        *("-c", str(REPOSITORY / "constraints" / "cpu.txt"), target),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if ended.returncode and own_torch:
        index = re.search(r"^TORCH_CPU_INDEX := (\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
        assert index is not None
        command += ["--extra-index-url", index[1]]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert ended.returncode == 0, ended.stderr
