"""What `headrace init` writes runs: SFT, evaluation and RL, with the commands its files name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import free_port
from tests.e2e.conftest import Running

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_written_task_app_and_configs_run(running_stack: Running, base: str, tmp_path: Path):
    assert running_stack.headrace("init", str(tmp_path / "task")).returncode == 0
    folder, port = tmp_path / "task", free_port()
    served = subprocess.Popen(
        [sys.executable, "-m", "headrace_cli", "serve", f"{folder}/task_app.py:app", "--port", str(port)],
        env={**os.environ, "ENVIRONMENT_API_KEY": "sums-key"},
    )
    try:
        sft_config = folder / "sft.toml"  # a tiny, untrained model needs more than a pretrained one
        text = sft_config.read_text().replace("learning_rate = 1e-5", "learning_rate = 2e-3")
        sft_config.write_text(text.replace("n_epochs = 1", "n_epochs = 10"))
        keyed = running_stack.with_env(ENVIRONMENT_API_KEY="sums-key")
        url = f"http://127.0.0.1:{port}"
        sft = keyed.headrace(
            "train",
            "--config",
            str(folder / "sft.toml"),
            "--dataset",
            str(folder / "sft.jsonl"),
            "--model",
            base,
        )
        assert sft.returncode == 0, sft.stdout + sft.stderr
        [model] = [job["model_id"] for job in running_stack.api.list_jobs(type="sft", limit=1)]
        for command, config in (("eval", "eval.toml"), ("train", "rl.toml")):
            done = keyed.headrace(
                command, "--config", str(folder / config), "--model", model, "--task-url", url
            )
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        served.terminate()
        served.wait(20)
