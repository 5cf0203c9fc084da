"""Variables from the shell and from `--env-file`; what the shell has set wins over every file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.errors import ConfigError

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


def parse(text: str, name: str) -> dict[str, str]:
    """`KEY=VALUE` lines; `export` in front, a pair of quotes around the value and `#` lines are allowed.

    >>> parse("export A='x y'\\n# note\\nB=1", ".env")
    {'A': 'x y', 'B': '1'}
    """
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:  # the line may hold a secret: it is not shown
            raise ConfigError(f"{name} line {number} is not KEY=VALUE")
        found[match[1]] = _unquoted(match[2].strip())
    return found


def merged(files: Iterable[Path], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of all files, a later file over an earlier one, the shell over both.

    Raises ConfigError for a file that cannot be read or a line that cannot be understood.
    """
    found: dict[str, str] = {}
    for path in files:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--env-file {path} cannot be read: {_why(error)}") from error
        found.update(parse(text, str(path)))
    return {**found, **environ}


def environment_keys(environ: Mapping[str, str]) -> list[str]:
    """The task app's keys, the primary one first.

    >>> environment_keys({"ENVIRONMENT_API_KEY": "a", "ENVIRONMENT_API_KEY_ALIASES": "b, a"})
    ['a', 'b']
    """
    names = ("ENVIRONMENT_API_KEY", "dev_environment_api_key", "DEV_ENVIRONMENT_API_KEY")
    primary = next((environ[name].strip() for name in names if environ.get(name, "").strip()), None)
    aliases = [key.strip() for key in environ.get("ENVIRONMENT_API_KEY_ALIASES", "").split(",")]
    return list(dict.fromkeys(key for key in (primary, *aliases) if key))


def _unquoted(value: str) -> str:
    is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"
