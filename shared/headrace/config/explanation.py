"""`headrace config explain`: what a key means, and whether it acts."""

from __future__ import annotations

import re

from headrace.config import describe, sentences
from headrace.config.not_used import NOT_USED, reason
from headrace.config.paths import written
from headrace.config.refused import REFUSED
from headrace.config.walk import MODELS, Key, keys, sections
from headrace.contracts.job import JobType
from headrace.errors import ConfigError

_BRACKETS = re.compile(r"^\[([^\]]+)\]\s*(.*)$")
_NAMES = {JobType.RL: "RL", JobType.SFT: "SFT", JobType.EVAL: "evaluation"}


def explain(key: str) -> str:
    """Text on a key: `training.batch_size`, `[training] batch_size`, or its last part, for all keys named so.

    Raises ConfigError, which names the nearest key, for one that no config has.
    """
    name = _plain(key)
    found = [text for full in _full_names(name) if (text := _of_name(full))]
    if not found:
        raise _unknown(key, name)
    return "\n\n".join(found)


def _of_name(name: str) -> str | None:
    """Text on a dotted key; job types of which it says the same share a paragraph."""
    by_text: dict[str, list[str]] = {}
    for job_type in JobType:
        if (text := _of_type(job_type, name)) is not None:
            by_text.setdefault(text, []).append(_NAMES[job_type])
    shown = f"[{name}]" if name in _section_names() else written(name)
    paragraphs = [f"{shown} ({' and '.join(jobs)} jobs)\n{text}" for text, jobs in by_text.items()]
    return "\n\n".join(paragraphs) or None


def _plain(key: str) -> str:
    """The dotted key of either spelling."""
    key = key.strip()
    if match := _BRACKETS.match(key):
        section, last = match.groups()
        return f"{section.strip()}.{last.strip()}".rstrip(".")
    return key


def _section_names() -> set[str]:
    return {".".join(path) for model in MODELS.values() for path, _ in sections(model) if path}


def _known() -> set[str]:
    """Every key and section of every job type."""
    known = _section_names()
    for job_type in JobType:
        known |= {key.name for key in keys(job_type)} | set(NOT_USED[job_type])
    return known


def _full_names(name: str) -> list[str]:
    """The name itself where it is known, else the known keys that end in it."""
    known = _known()
    if name in known or any(name.startswith(f"{table}.") for table in _free_tables()):
        return [name]
    return sorted(one for one in known if one.endswith(f".{name}"))


def _free_tables() -> set[str]:
    """Tables that hold keys of the user's own."""
    found = {
        key.name
        for job_type in JobType
        for key in keys(job_type)
        if describe.type_of(key.field.annotation) == "*free* table"
    }
    found |= {
        ".".join(at)
        for m in MODELS.values()
        for at, s in sections(m)
        if s.model_config.get("extra") == "allow"
    }
    return found | {key for register in NOT_USED.values() for key in register}


def _of_type(job_type: JobType, name: str) -> str | None:
    if (why := reason(job_type, name)) is not None:
        return f"  accepted, not used: {why}"
    for key in keys(job_type):
        if key.name == name:
            return _of_key(job_type, key)
    for path, section in sections(MODELS[job_type]):
        if ".".join(path) == name and path:
            return f"  a section of {', '.join(section.model_fields)}"
    return _of_free_table(job_type, name)


def _of_free_table(job_type: JobType, name: str) -> str | None:
    for key in keys(job_type):
        if name.startswith(f"{key.name}.") and describe.type_of(key.field.annotation) == "*free* table":
            text = f"  a key of your own in the free table {written(key.name)}"
            return f"{text}\n  {describe.meaning_of(key.field)}"
    for path, section in sections(MODELS[job_type]):
        if path and name.startswith(f"{'.'.join(path)}.") and section.model_config.get("extra") == "allow":
            return f"  a key of your own in [{'.'.join(path)}]; jobs are found by it"
    return None


def _of_key(job_type: JobType, key: Key) -> str:
    default = describe.default_of(key.field)
    said = "required" if key.field.is_required() else f"default: {default or 'absent'}"
    kind = (describe.type_of(key.field.annotation) + describe.bounds_of(key.field)).replace("`", "")
    lines = [describe.meaning_of(key.field), f"type: {kind}; {said}", _effect(job_type, key)]
    return "\n".join(f"  {line}" for line in lines if line)


def _effect(job_type: JobType, key: Key) -> str:
    whys = [refusal.why for refusal in REFUSED[job_type] if refusal.key == key.name]
    return f"acts; other values are refused: {'; '.join(whys)}" if whys else "acts"


def _unknown(key: str, name: str) -> ConfigError:
    known = _known()
    close = sentences.nearest(name, known)
    if close is None:
        last = {one.rpartition(".")[2]: one for one in sorted(known, reverse=True)}
        close = last.get(sentences.nearest(name.rpartition(".")[2], last) or "")
    hint = f"did you mean {written(close)}?" if close else "see `headrace config schema` for all keys"
    return sentences.refusal([f"no config has the key {key[:200]}: {hint}"])
