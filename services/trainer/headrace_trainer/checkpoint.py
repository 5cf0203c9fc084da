"""Checkpoints as folders: weights in HF layout, Adam moments, and where the job stood. No SQL."""

from __future__ import annotations

import base64
import json
import random
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headrace.artifacts.files import MANIFEST, read_manifest, seal_folder, write_atomically
from headrace.contracts.policy import PolicyVersion
from headrace.errors import JobFailed
from headrace.rl.staleness import PolicyHistory
from headrace_trainer.model import save_policy
from headrace_trainer.probe import proof_of

# A folder of their own: an engine loads every *.safetensors beside the model's.
MOMENTS = "trainer/moments.safetensors"
STATE = "trainer/state.json"


@dataclass(frozen=True)
class TrainerState:
    """Where a job stood; with weights and moments, all that a resume needs."""

    version: PolicyVersion
    """Of the weights in the checkpoint."""
    iteration: int
    """RL: iterations done. SFT: 0."""
    step: int
    """Optimiser steps taken."""
    seed_position: int
    """Task seeds drawn by finished iterations (`SeedSchedule`); of use, not of issue."""
    history: PolicyHistory
    facts: dict[str, Any] = field(default_factory=dict)
    """Further JSON that the job's loop wants back."""


def write_checkpoint(
    final: Path,
    model: Any,
    source_folder: Path,
    optimizer: torch.optim.Optimizer,
    state: TrainerState,
) -> dict[str, str]:
    """Write a checkpoint so that `final` is whole or absent, whenever a kill comes.

    Config and tokenizer files come from `source_folder`. The states of torch's and Python's random
    generators are stored too. Returns the sha256 of each file.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    for left_over in final.parent.glob(f".{final.name}.*.staging"):
        shutil.rmtree(left_over)
    staging = final.with_name(f".{final.name}.{secrets.token_hex(4)}.staging")
    save_policy(model, source_folder, staging)
    proof_of(model).write(staging)
    (staging / MOMENTS).parent.mkdir()
    save_file(_moments(model, optimizer), staging / MOMENTS)
    record = {
        "schema_version": 1,
        "version": str(state.version),
        "iteration": state.iteration,
        "step": state.step,
        "seed_position": state.seed_position,
        "history": state.history.to_json(),
        "facts": state.facts,
        "random": _random_states(),
    }
    (staging / STATE).write_text(json.dumps(record))
    facts: dict[str, object] = {
        key: record[key] for key in ("schema_version", "version", "iteration", "step", "history")
    }
    return seal_folder(staging, final, facts)


def read_checkpoint(folder: Path) -> TrainerState:
    """State of a whole checkpoint, every file checked against the manifest.

    Raises JobFailed when a file is missing or changed, or the trainer state was dropped.
    Load the weights with `model.load_policy(folder)`, then call `restore`.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise JobFailed(f"checkpoint {folder} is incomplete or was changed; resume from an older one")
    files = manifest["files"]
    if not isinstance(files, dict) or not {STATE, MOMENTS} <= files.keys():
        raise JobFailed(f"checkpoint {folder} holds weights only; resume from a newer one, or start from it")
    record = json.loads((folder / STATE).read_bytes())
    return TrainerState(
        version=PolicyVersion.parse(record["version"]),
        iteration=record["iteration"],
        step=record["step"],
        seed_position=record["seed_position"],
        history=PolicyHistory.from_json(record["history"]),
        facts=record["facts"],
    )


def restore(folder: Path, model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Put the checkpoint's moments into `optimizer` and its random states into this process.

    `model` holds the checkpoint's weights and `optimizer` was made for it with the job's settings.
    """
    parameters = dict(model.named_parameters())
    for key, tensor in load_file(folder / MOMENTS).items():
        kind, _, name = key.partition("/")
        parameter = parameters.get(name)
        if parameter is None or (tensor.ndim and tensor.shape != parameter.shape):
            raise JobFailed(f"checkpoint {folder} has moments of {name}, which its model does not have so")
        placed = tensor if kind == "step" else tensor.to(parameter.device)
        optimizer.state[parameter][kind] = placed
    states = json.loads((folder / STATE).read_bytes())["random"]
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(_tensor(states["torch"]))
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([_tensor(text) for text in states["cuda"]])


def drop_trainer_state(folder: Path) -> None:
    """Remove what only a resume needs; the folder stays a trusted model. Safe to repeat after a kill.

    The manifest is replaced first, so that at no moment it names a file that is gone.
    """
    manifest = read_manifest(folder, verify=False)
    if manifest is not None and isinstance(files := manifest["files"], dict):
        kept = {name: digest for name, digest in files.items() if name not in (MOMENTS, STATE)}
        write_atomically(folder / MANIFEST, json.dumps({**manifest, "files": kept}, indent=1).encode())
    for name in (MOMENTS, STATE):
        (folder / name).unlink(missing_ok=True)


def _moments(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by `<kind>/<parameter name>`: exp_avg, exp_avg_sq, step."""
    return {
        f"{kind}/{name}": tensor.detach().contiguous()
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for kind, tensor in optimizer.state[parameter].items()
    }


def _random_states() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": [version, list(words), gauss],
        "torch": _text(torch.get_rng_state()),
        "cuda": [_text(state) for state in cuda],
    }


def _text(state: Tensor) -> str:
    return base64.b64encode(bytes(state.tolist())).decode()


def _tensor(text: str) -> Tensor:
    return torch.tensor(list(base64.b64decode(text)), dtype=torch.uint8)
