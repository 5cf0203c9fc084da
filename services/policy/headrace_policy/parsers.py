"""Whether the engine knows the parsers that a spec names, said before it is started.

The engine would say so too, after half a minute and at the end of a page of its own words. Its names
are read from its source, since importing it takes seconds and gigabytes.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from headrace.errors import BadRequest

_TABLES = {
    "--tool-call-parser": ("tool_parsers", "_TOOL_PARSERS_TO_REGISTER", "--tool-parser-plugin"),
    "--reasoning-parser": ("reasoning", "_REASONING_PARSERS_TO_REGISTER", "--reasoning-parser-plugin"),
}
"""Option -> its package in the engine, the table of names there, and the option that adds to it."""
_KEYS = {"--tool-call-parser": "tool_parser", "--reasoning-parser": "reasoning_parser"}
"""Option -> its key in models.toml."""


def require_known(engine_args: Sequence[str]) -> None:
    """Raise BadRequest naming a parser that the engine does not have.

    Says nothing where the engine's table cannot be read, or a plugin adds to it: then it decides itself.
    """
    for option, (_, _, plugin) in _TABLES.items():
        name, known = value_of(engine_args, option), known_parsers(option)
        if name is None or not known or name in known or value_of(engine_args, plugin) is not None:
            continue
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
        raise BadRequest(
            f"{_KEYS[option]} = {name!r} is no parser of the engine; {hint} (models.toml, or the pool's engine_args)"
        )


def value_of(engine_args: Sequence[str], option: str) -> str | None:
    """The option's value, as `--option value` or `--option=value`; the last one counts.

    >>> value_of(("--tool-call-parser", "hermes", "--tool-call-parser=llama3_json"), "--tool-call-parser")
    'llama3_json'
    """
    found = None
    for position, argument in enumerate(engine_args):
        name, is_joined, value = argument.partition("=")
        if name == option:
            found = value if is_joined else next(iter(engine_args[position + 1 : position + 2]), None)
    return found


@cache
def known_parsers(option: str) -> frozenset[str]:
    """The engine's own names for an option; empty where they cannot be read."""
    package, table, _ = _TABLES[option]
    spec = find_spec("vllm")  # finds the package without importing it
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    source = Path(spec.submodule_search_locations[0]) / package / "__init__.py"
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return frozenset()
    return frozenset(name for node in tree.body for name in _keys_of(node, table))


def _keys_of(node: ast.stmt, table: str) -> list[str]:
    """The texts that are keys of a dict assigned to `table`."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    value = getattr(node, "value", None)
    is_table = any(isinstance(target, ast.Name) and target.id == table for target in targets)
    if not is_table or not isinstance(value, ast.Dict):
        return []
    return [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
