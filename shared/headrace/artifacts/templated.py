"""A model folder under another chat template: links to its files, and the template beside them.

Whoever loads the model (gateway, engine, trainer) finds the template where a model folder has it, so a
checkpoint, which copies the files beside the weights, carries the template that it was trained with.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from pathlib import Path

TEMPLATE = "chat_template.jinja"
_OWN_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
_FACTS = "tokenizer_config.json"


def with_template(folder: Path, template_file: Path, views: Path) -> Path:
    """The view of `folder` with `template_file` as its template, made under `views` unless it is there.

    Its name depends on what is in it: a template that is edited makes another view, and jobs that
    run keep theirs. Raises OSError when a file cannot be read or written.
    """
    template = template_file.read_bytes()
    facts = _facts_without_template(folder)
    linked = sorted(path.name for path in folder.iterdir() if path.name not in (*_OWN_TEMPLATES, _FACTS))
    digest = hashlib.sha256(json.dumps([str(folder), linked]).encode() + b"\0" + facts + b"\0" + template)
    final = views / digest.hexdigest()[:24]
    if final.is_dir():
        return final
    staging = views / f".{final.name}.{secrets.token_hex(4)}.staging"
    staging.mkdir(parents=True)
    for name in linked:
        (staging / name).symlink_to(folder / name)
    (staging / _FACTS).write_bytes(facts)
    (staging / TEMPLATE).write_bytes(template)
    try:
        staging.rename(final)
    except OSError:
        shutil.rmtree(staging)
        if not final.is_dir():  # else another process made the same view first
            raise
    return final


def _facts_without_template(folder: Path) -> bytes:
    try:
        facts = json.loads((folder / _FACTS).read_bytes())
    except FileNotFoundError:
        facts = {}
    facts.pop("chat_template", None)
    return json.dumps(facts, indent=1, ensure_ascii=False).encode()
