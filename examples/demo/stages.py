"""The story of a demo: imitate, measure, reinforce, measure again; each stage a job of a real stack."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.demo import episodes, jobs, view
from examples.demo.jobs import Job
from examples.demo.recipe import Recipe
from examples.demo.stack import ROOT, Stack
from examples.demo.summary import Figures
from headrace.client import ApiClient
from headrace.errors import JobFailed

SEEDED = {
    "sft": "hyperparameters",
    "rl": "training",
    **dict.fromkeys(("eval", "eval_greedy", "eval_blind"), "evaluation_job"),
}
"""Section of each config that takes a seed."""


@dataclass
class Stages:
    """Runs the stages of one recipe on a running stack."""

    recipe: Recipe
    stack: Stack
    api: ApiClient
    console: Console
    seed: int
    """Of SFT, RL and every sampled token."""
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> tuple[Figures, dict[str, str]]:
        """All stages; returns the figures and the facts to print beside them."""
        imitated = self._imitate()
        baseline, baseline_greedy = self._measure("baseline", imitated["model_id"])
        trained_job = self._reinforce(imitated["model_id"])
        model = trained_job["model_id"]
        trained, trained_greedy = self._measure(
            "trained", model, baseline=baseline["job_id"], baseline_greedy=baseline_greedy["job_id"]
        )
        blind = self._blind(model, trained["job_id"])
        self._show(baseline, trained)
        figures = Figures(
            baseline=baseline["result"],
            baseline_greedy=baseline_greedy["result"],
            trained=trained["result"],
            trained_greedy=trained_greedy["result"],
            blind=blind["result"],
            seconds=self.seconds,
            iterations=trained_job["iteration"],
            calls=calls_of(self.api, trained_job["job_id"]),
            model_id=model,
            controls={name: control() for name, control in self.recipe.controls.items()},
        )
        return figures, self._facts(trained_job)

    def _imitate(self) -> Job:
        data = str(demonstrations(self.stack.home))
        with self._stage("sft", f"SFT on noisy demonstrations: {self.recipe.task}") as progress:
            job_id = jobs.submit(self.stack, "train", self._config("sft"), "--dataset", data)
            return jobs.wait(self.api, [job_id], progress)[0]

    def _reinforce(self, model: str) -> Job:
        with self._stage("rl", "RL with GRPO: mean reward of each iteration") as progress:
            job_id = self._submit_on_task("train", "rl", model)
            return jobs.wait(self.api, [job_id], progress)[0]

    def _measure(
        self, stage: str, model: str, baseline: str | None = None, baseline_greedy: str | None = None
    ) -> tuple[Job, Job]:
        """The sampled and the greedy evaluation of a model."""
        with self._stage(stage, f"evaluation of {model} on {self.recipe.held_out}") as progress:
            sampled = self._submit_on_task("eval", "eval", model, baseline)
            greedy = self._submit_on_task("eval", "eval_greedy", model, baseline_greedy)
            first, second = jobs.wait(self.api, [sampled, greedy], progress)
            return first, second

    def _blind(self, model: str, seeing: str) -> Job:
        with self._stage("blind", "the control: the same policy reads a constant") as progress:
            job_id = self._submit_on_task("eval", "eval_blind", model, seeing)
            return jobs.wait(self.api, [job_id], progress)[0]

    def _submit_on_task(self, command: str, name: str, model: str, baseline: str | None = None) -> str:
        config = self._config(name)
        if baseline is not None:
            config = jobs.with_baseline(config, baseline, self.stack.home / "demo")
        return jobs.submit(self.stack, command, config, "--task-url", self.stack.task_url, "--model", model)

    def _config(self, name: str) -> Path:
        config = self.recipe.config(name)
        if self.seed == 0:
            return config
        copy = self.stack.home / "demo" / f"{name}_seed{self.seed}.toml"
        return jobs.with_key(config, SEEDED[name], "seed", str(self.seed), copy)

    def _show(self, baseline: Job, trained: Job) -> None:
        seed, before, after = episodes.most_telling(self.api, baseline, trained)
        view.before_and_after(self.console, seed, self.recipe.draw(before), self.recipe.draw(after))

    def _facts(self, trained_job: Job) -> dict[str, str]:
        return {
            "model id": trained_job["model_id"],
            "checkpoint": trained_job["result"]["checkpoint"],
            "dashboard": f"{self.stack.dashboard_url}/jobs/{trained_job['job_id']}",
        }

    @contextmanager
    def _stage(self, name: str, title: str) -> Iterator[view.Progress]:
        started = time.monotonic()
        with view.Progress(self.console, title) as progress:
            yield progress
        self.seconds[name] = time.monotonic() - started


def demonstrations(home: Path) -> Path:
    return home / "demo" / "demonstrations.jsonl"


def prepare(recipe: Recipe, home: Path, seed: int) -> None:
    """Make the base model, its alias and the demonstrations; each in a process of its own, as a user would."""
    folder = home / "demo" / recipe.alias
    _python("-m", f"{recipe.package}.base_model", str(folder), str(seed))
    _python("-m", f"{recipe.package}.demonstrations", str(demonstrations(home)), str(seed))
    name_model(home / "models.toml", recipe.alias, folder)


def name_model(models_toml: Path, alias: str, folder: Path) -> None:
    """Add the alias to the operator's models.toml; what is there stays as it is."""
    text = models_toml.read_text() if models_toml.exists() else ""
    known = tomllib.loads(text).get("models", {})
    if alias in known:
        if known[alias].get("path") != str(folder):
            raise JobFailed(
                f"{models_toml} already maps {alias!r} to another folder; use another HEADRACE_HOME"
            )
        return
    separator = "\n" if text and not text.endswith("\n") else ""
    models_toml.write_text(f'{text}{separator}[models."{alias}"]\npath = "{folder}"\n')


def calls_of(api: ApiClient, job_id: str) -> int:
    """Policy calls of an RL job's scored rollouts, from its metrics."""
    turns: dict[str, Any] = {p["step"]: p["value"] for p in api.metrics(job_id, name="turns.mean")}
    scored = {p["step"]: p["value"] for p in api.metrics(job_id, name="rollouts.scored")}
    return round(sum(turns[step] * scored.get(step, 0.0) for step in turns))


def _python(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JobFailed(f"python {' '.join(arguments)} failed: {done.stderr.strip()[-500:]}")
