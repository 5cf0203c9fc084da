"""`docs/metrics.md` and the code name the same metrics."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.trajectories import make_call, make_trajectory

from headrace.contracts.trajectory import EventReward, Op, Rewards
from headrace.rl.measures import episode_measures, reward_measures

ROOT = Path(__file__).parents[3]
TRAINER = ROOT / "services" / "trainer" / "headrace_trainer"
WRITERS = [
    ROOT / "shared" / "headrace" / "rl" / "measures.py",
    *(TRAINER / f"{name}.py" for name in (
        "accounting", "evaluation", "evaluator", "rl_loop", "rl_report", "rl_run", "step", "sft_loop", "sft_step",
    )),
]  # fmt: skip
NAME = re.compile(r"[a-z]+(\.[\w<>*-]+)+")


def documented() -> set[str]:
    text = (ROOT / "docs" / "metrics.md").read_text()
    return {name for name in re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE) if NAME.fullmatch(name)}


def written() -> set[str]:
    """Dotted names that the writers use as keys; `*` stands for what is filled in at run time."""
    found = (_text(node) for path in WRITERS for node in _keys(ast.parse(path.read_text())))
    return {name for name in found if name is not None and NAME.fullmatch(name)}


def _keys(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from (key for key in node.keys if key is not None)
        elif isinstance(node, ast.DictComp):
            yield node.key
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield node.slice
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "name":
            yield node.value


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
    return None


def test_every_metric_that_the_code_can_write_is_on_the_page_and_no_other():
    names, page = written(), documented()
    patterns = {name: re.compile(re.escape(name).replace(r"\*", r"[^.]+")) for name in names if "*" in name}
    fixed = names - patterns.keys()
    assert len(fixed) > 30, "the search finds the names"
    assert fixed - page == set()
    unmatched = {name for name in page - fixed if not any(one.fullmatch(name) for one in patterns.values())}
    assert unmatched == set()
    unused = {name for name, one in patterns.items() if not any(one.fullmatch(known) for known in page)}
    assert unused <= {"eval.*"}, "these are the episodes' names with a prefix"


def test_what_episodes_show_is_named_on_the_page():
    call = make_call(0, [1], [2], finish_reason="stop", latency_s=1.0)
    events = (EventReward(turn=0, key="<key>", value=1.0),)
    full = make_trajectory(call).model_copy(
        update={
            "rewards": Rewards(outcome_reward=1.0, event_rewards=events),
            "ops": (Op(index=0, latency_s=0.1, is_invalid_action=False),),
        }
    )
    names = {**episode_measures([full]), **reward_measures([1.0], [1.0])}.keys()
    shown = {name.replace("events.key.", "events.<key>.") for name in names}
    assert shown <= documented()
    section = (ROOT / "docs" / "metrics.md").read_text().split("## Episodes")[1].split("\n## ")[0]
    rows = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
    assert rows == {name for name in shown if not name.startswith(("reward.", "return.", "success."))}
