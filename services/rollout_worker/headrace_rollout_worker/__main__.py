"""`python -m headrace_rollout_worker`: play rollout orders of this process's pool."""

from __future__ import annotations

from headrace import log
from headrace_rollout_worker.settings import WorkerSettings


def main() -> None:
    log.configure("rollout_worker")
    settings = WorkerSettings()

    from headrace_rollout_worker.app import run

    run(settings)


if __name__ == "__main__":
    main()
