"""Ids: those that are drawn, and those that are functions of the work they name.

An id that is a function of the work makes handling it twice harmless.
"""

from __future__ import annotations

import hashlib
import secrets

TRAIN = "train"
"""Purpose of a rollout that the trainer learns from."""
EVAL = "eval"
"""Purpose of a rollout that only measures a policy."""


def new_id(prefix: str) -> str:
    """A drawn id such as `job_5f0c...` (64 random bits)."""
    return f"{prefix}_{secrets.token_hex(8)}"


def new_session_id() -> str:
    """One attempt's unguessable id (128 random bits); it is the credential of its inference URL."""
    return f"trace_{secrets.token_hex(16)}"


def rollout_id(job_id: str, purpose: str, iteration: int, group: int, member: int) -> str:
    """The id of a rollout, the same for each attempt.

    >>> rollout_id("job_1", "train", 3, 0, 7)
    'job_1.train.i3.g0.m7'
    """
    return f"{job_id}.{purpose}.i{iteration}.g{group}.m{member}"


def sampling_seed(job_seed: int, rollout_id: str, attempt: int, call: int) -> int:
    """The sampling seed of one call, in [0, 2**31): the same call replayed draws the same tokens."""
    text = f"{job_seed}/{rollout_id}/{attempt}/{call}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1
