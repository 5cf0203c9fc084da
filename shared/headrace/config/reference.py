"""The reference of every config key, written from the models: `python -m headrace.config.reference`.

The text under a field is its documentation, so the page cannot drift from the code.
"""

from __future__ import annotations

from pydantic import BaseModel

from headrace.config import describe
from headrace.config.not_used import NOT_USED, reason
from headrace.config.paths import written
from headrace.config.refused import REFUSED
from headrace.config.synonyms import SYNONYMS
from headrace.config.walk import MODELS, section_of, sections
from headrace.contracts.job import JobType

TITLES = {JobType.RL: "RL jobs", JobType.SFT: "SFT jobs", JobType.EVAL: "Evaluation jobs"}
_INTRO = """\
# Config reference

Written from the code by `python -m headrace.config.reference`. `headrace config explain KEY` prints a key's
entry, `headrace config check FILE` checks a file, and `headrace config schema` prints a JSON Schema for
editors. A table marked *free* takes keys of your own.

Every key acts, or some of its values are refused, or it is accepted and not used; each list is below, with
reasons. `headrace train` refuses unknown keys, naming the nearest valid one, refused values, and keys of one
meaning that differ. From other clients the server takes them: unknown keys are left out, a refused value
is replaced, of two keys of one meaning the first one listed wins, and an event of the job tells each.

A *batch* counts rollouts, but for `[training] batch_size`, which counts prompts: rollouts per optimiser
step = `batch_size` x `group_size` x `[rollout] batches_per_step`."""


def page() -> str:
    """Markdown of the whole reference."""
    lines = [_INTRO]
    for job_type, title in TITLES.items():
        lines += ["", f"## {title}"]
        for path, section in sections(MODELS[job_type]):
            lines += _table(job_type, path, section)
        lines += [*_synonyms(job_type), *_refused(job_type), *_not_used(job_type)]
    return "\n".join(lines) + "\n"


def _table(job_type: JobType, path: tuple[str, ...], model: type[BaseModel]) -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        if section_of(field) is not None or reason(job_type, ".".join((*path, name))) is not None:
            continue
        kind = describe.type_of(field.annotation) + describe.bounds_of(field)
        default = describe.default_of(field)
        shown = "**required**" if field.is_required() else f"`{default}`" if default else ""
        rows.append(f"| `{name}` | {kind} | {shown} | {_cell(describe.meaning_of(field))} |")
    if not rows:
        return []
    heading = f"### `[{'.'.join(path)}]`" if path else "### Top level"
    return ["", heading, "", "| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows]


def _synonyms(job_type: JobType) -> list[str]:
    rows = [f"- {', '.join(f'`{written(key)}`' for key in same.keys)}" for same in SYNONYMS[job_type]]
    return ["", f"### Keys of one meaning, {TITLES[job_type]}", "", *rows]


def _refused(job_type: JobType) -> list[str]:
    rows = []
    for refusal in REFUSED[job_type]:
        instead = "left out" if refusal.used is None else f"`{written(refusal.key)} = {refusal.used!r}`"
        rows.append(
            f"| `{written(refusal.key)}` | {_cell(refusal.why)} | {instead.replace(chr(39), chr(34))} |"
        )
    heading = f"### Refused values, {TITLES[job_type]}"
    return ["", heading, "", "| key | why | for other clients |", "| --- | --- | --- |", *rows]


def _not_used(job_type: JobType) -> list[str]:
    rows = [f"| `{written(key)}` | {_cell(why)} |" for key, why in NOT_USED[job_type].items()]
    heading = f"### Accepted, not used, {TITLES[job_type]}"
    return ["", heading, "", "| key | why, and what to use |", "| --- | --- |", *rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
