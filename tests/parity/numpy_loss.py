"""The losses that TRL lacks, written out in NumPy from their formulas; imports nothing of ours or torch's."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def dppo(lp: Array, behaviour: Array, advantage: Array, max_shift: float, pull: float) -> Array:
    out = np.empty_like(lp)
    for t in range(len(lp)):
        shift = np.exp(lp[t]) - np.exp(behaviour[t])
        is_out = (advantage[t] > 0 and shift > max_shift) or (advantage[t] < 0 and shift < -max_shift)
        gap = lp[t] - behaviour[t]
        out[t] = (0.0 if is_out else -advantage[t] * np.exp(gap)) + pull * gap * gap
    return out


def dual_clip(lp: Array, old: Array, advantage: Array, low: float, high: float, c: float) -> Array:
    out = np.empty_like(lp)
    for t in range(len(lp)):
        r, a = np.exp(lp[t] - old[t]), advantage[t]
        surrogate = min(r * a, min(max(r, 1 - low), 1 + high) * a)
        out[t] = -max(surrogate, c * a) if a < 0 else -surrogate
    return out


def kl(lp: Array, reference: Array, kind: str) -> Array:
    d = reference - lp
    return {"k1": -d, "k2": d * d / 2, "k3": np.exp(d) - d - 1}[kind]


def importance(old: Array, behaviour: Array, rollout: Array, kind: str, low: float, high: float) -> Array:
    w = np.exp(old - behaviour)
    out = np.empty_like(w)
    for r in np.unique(rollout):
        mine = rollout == r
        log_sum = np.sum((old - behaviour)[mine])
        whole = {"sequence": np.exp(log_sum), "geometric": np.exp(log_sum / mine.sum())}.get(
            kind.split("_")[0]
        )
        value = w[mine] if whole is None else np.full(mine.sum(), whole)
        if kind.endswith("mask"):
            inside = (value >= low) & (value <= high)
            out[mine] = np.where(inside, 1.0 if kind.startswith("geometric") else value, 0.0)
        else:
            out[mine] = np.minimum(value, high)
    return out
