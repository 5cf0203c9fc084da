"""`make parity`: every loss against TRL's own code, or a NumPy file where TRL has none."""

from __future__ import annotations

import sys

import torch
from tests.parity.cases import NUMPY_CASES, TRL_CASES, worst_error

N_BATCHES = 200
LIMITS = {torch.float64: 1e-6, torch.float32: 1e-5}


def main() -> int:
    worst, failed = 0.0, False
    for name in (*TRL_CASES, *NUMPY_CASES):
        for dtype, limit in LIMITS.items():
            if name in NUMPY_CASES and dtype is torch.float32:
                continue
            found = worst_error(name, N_BATCHES, dtype)
            failed |= not found <= limit
            worst = max(worst, found / limit)
            print(f"{name:<16} {str(dtype).removeprefix('torch.'):<8} {found:.2e} (limit {limit:.0e})")
    n = len(TRL_CASES) + len(NUMPY_CASES)
    print(f"parity: {N_BATCHES} batches, {n} losses, worst {worst:.2g} of its limit")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
