"""What `headrace init` writes: a task app of thirty lines, with configs for RL, SFT and evaluation."""

from __future__ import annotations

import json
import random
from importlib.resources import files
from pathlib import Path

from headrace.artifacts.files import write_atomically
from headrace.errors import Conflict

_COPIED = {
    "task_app.py": "task_app.py",
    "rl.toml": "rl.toml",
    "sft.toml": "sft.toml",
    "eval.toml": "eval.toml",
    "env.example": ".env.example",
}
N_CONVERSATIONS = 200


def write(folder: Path) -> list[Path]:
    """Write the files into `folder`; raises Conflict, before anything is written, where one exists."""
    source = files("headrace.task_app") / "scaffold_files"
    content = {target: (source / name).read_bytes() for name, target in _COPIED.items()}
    content["sft.jsonl"] = _conversations()
    taken = [name for name in content if (folder / name).exists()]
    if taken:
        raise Conflict(f"{folder} already has {', '.join(taken)}; nothing was written")
    for name, body in content.items():
        write_atomically(folder / name, body)
    return [folder / name for name in content]


def _conversations() -> bytes:
    """Right answers to the task app's questions, as chat JSONL."""
    numbers, lines = random.Random(0), []
    for _ in range(N_CONVERSATIONS):
        a, b = numbers.randint(0, 9), numbers.randint(0, 9)
        messages = [
            {"role": "system", "content": "Answer with the number only."},
            {"role": "user", "content": f"{a} + {b} ="},
            {"role": "assistant", "content": str(a + b)},
        ]
        lines.append(json.dumps({"messages": messages}) + "\n")
    return "".join(lines).encode()
