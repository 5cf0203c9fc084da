"""The demos' report: figures in, a table, a verdict and a plain sentence out."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples.demo import curve, jobs, stages, view
from examples.demo.recipe import Recipe
from examples.demo.summary import Figures
from examples.frozenlake import demo as lake_demo
from examples.frozenlake import maps
from examples.walk import demo as walk_demo
from headrace.errors import JobFailed


def result(success: float, low: float = 0.5, high: float = 0.7, n: int = 300) -> dict[str, Any]:
    difference = {"mean": (low + high) / 2, "low": low, "high": high, "n_clusters": 20}
    return {"success": success, "mean_return": success, "n": n, "difference": difference}


def figures(**changed: Any) -> Figures:
    known: dict[str, Any] = {
        "baseline": result(0.31),
        "baseline_greedy": result(0.40, n=20),
        "trained": result(0.92),
        "trained_greedy": result(1.0, n=20),
        "blind": result(0.0, -0.95, -0.85),
        "seconds": {"sft": 65.04},
        "iterations": 40,
        "calls": 7215,
        "model_id": "ft:tiny-walk:job_1",
    }
    return Figures(**known | changed)


def test_the_summary_has_the_keys_that_others_read():
    told = figures().to_json()
    assert told["baseline"] == {"success": 0.31, "n": 300, "mean_return": 0.31}
    assert told["greedy"] == {"baseline": 0.40, "trained": 1.0}
    assert told["difference"] == {"mean": pytest.approx(0.6), "low": 0.5, "high": 0.7}
    assert (told["blind"], told["seconds"], told["iterations"]) == (0.0, {"sft": 65.0}, 40)
    assert (told["calls"], told["model_id"]) == (7215, "ft:tiny-walk:job_1")


def test_good_figures_have_no_shortfall():
    assert figures().shortfalls() == []


def test_a_gain_inside_its_interval_is_a_shortfall_and_is_said():
    weak = figures(trained=result(0.35, -0.02, 0.1))
    assert len(weak.shortfalls()) == 1
    assert weak.learned().startswith("Nothing that can be told from chance")


def test_a_control_that_is_not_beaten_is_a_shortfall():
    assert len(figures(blind=result(0.9, -0.1, 0.05)).shortfalls()) == 1
    assert len(figures(controls={"a coin": 0.93}).shortfalls()) == 1


def test_what_was_learned_follows_from_the_greedy_figures():
    assert figures().learned().startswith("RL taught more than its demonstrator showed")
    assert figures(baseline_greedy=result(1.0)).learned().startswith("RL removed the noise")
    within = figures(baseline_greedy=result(0.93), trained_greedy=result(1.0))
    assert within.learned().startswith("Mostly RL removed the noise")


def test_a_curve_has_a_column_per_value_and_keeps_the_newest():
    lines = curve.draw([0.0, 0.5, 1.0], height=2)
    assert lines == ["1.0 ┤  █", "    ┤ ██"]
    assert curve.draw([0.0] * 10 + [1.0], height=1, width=2) == ["1.0 ┤ █"]


def test_progress_off_a_terminal_is_plain_lines():
    out = io.StringIO()
    with view.Progress(Console(file=out, width=100), "RL") as progress:
        job = {"type": "rl", "job_id": "job_1", "status": "running"}
        progress([{"name": "reward.mean", "step": 1, "value": 0.25}], job)
    assert "rl job_1: running" in out.getvalue()
    assert "rl step 1: reward.mean 0.250" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_the_closing_table_shows_figures_facts_and_sentence():
    out = io.StringIO()
    view.closing(Console(file=out, width=120), figures(controls={"a coin": 0.14}), {"checkpoint": "/there"})
    for text in ("0.310", "0.920", "+0.600 [+0.500, +0.700]", "a coin", "0.140", "/there", "RL taught more"):
        assert text in out.getvalue()


def test_naming_a_model_keeps_what_the_operator_wrote(tmp_path: Path):
    models = tmp_path / "models.toml"
    models.write_text('[models."mine"]\npath = "/mine"')
    stages.name_model(models, "tiny-walk", tmp_path / "base")
    stages.name_model(models, "tiny-walk", tmp_path / "base")
    assert tomllib.loads(models.read_text())["models"] == {
        "mine": {"path": "/mine"},
        "tiny-walk": {"path": str(tmp_path / "base")},
    }
    with pytest.raises(JobFailed, match="another folder"):
        stages.name_model(models, "tiny-walk", tmp_path / "elsewhere")


def test_a_walk_is_drawn_turn_by_turn():
    drawn = walk_demo.draw(
        {
            "ops": [
                {"observation": "x+3 y-2", "action": "RRR"},
                {"observation": {"observation": "x+0 y-2"}, "action": "DD"},
            ],
            "final_observation": "x+0 y+0",
            "rewards": {"outcome_reward": 1.0},
        }
    )
    assert drawn.splitlines() == ["x+3 y-2  →  RRR", "x+0 y-2  →  DD", "x+0 y+0  reached"]


def test_a_lake_is_drawn_with_the_way_taken():
    seed = next(s for s in maps.TRAINING_SEEDS if maps.map_of(s)[0].startswith("SF"))
    rows = maps.map_of(seed)
    ops = [
        {"observation": maps.draw(rows, (0, 0)), "action": "R"},
        {"observation": maps.draw(rows, (0, 1)), "action": "D"},
    ]
    drawn = lake_demo.draw({"seed": seed, "ops": ops, "rewards": {"outcome_reward": 0.0}}).splitlines()
    assert drawn[0].startswith("→ ↓ ")
    assert drawn[1:4] == [" ".join(row) for row in rows[1:]]
    assert drawn[4:] == ["RD", "did not reach G"]


@pytest.mark.parametrize("recipe", [walk_demo.RECIPE, lake_demo.RECIPE], ids=lambda recipe: recipe.name)
def test_an_evaluation_against_a_baseline_is_the_same_config_with_the_key(recipe: Recipe, tmp_path: Path):
    copy = jobs.with_baseline(recipe.config("eval"), "eval_1", tmp_path)
    told = tomllib.loads(copy.read_text())
    assert told["evaluation_job"].pop("baseline") == "eval_1"
    assert told == tomllib.loads(recipe.config("eval").read_text())
