"""The trainer process (`python -m headrace_trainer`): claims RL and SFT jobs of its pool."""

from __future__ import annotations


def main() -> None:
    import torch

    from headrace_trainer.claim import serve_jobs
    from headrace_trainer.rl_loop import run_rl
    from headrace_trainer.sft_loop import run_sft

    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # a second thread only takes the core from the engine
    serve_jobs("trainer", ("rl", "sft"), {"rl": run_rl, "sft": run_sft})


if __name__ == "__main__":
    main()
