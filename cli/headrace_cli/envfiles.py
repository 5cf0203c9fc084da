"""Variables from the shell and from `--env-file`; what the shell has set wins over every file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConfigError

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_KEY_NAMES = ("ENVIRONMENT_API_KEY", "dev_environment_api_key", "DEV_ENVIRONMENT_API_KEY")


@dataclass(frozen=True)
class Environment:
    """What the files and the shell say together."""

    values: dict[str, str]
    files: tuple[Path, ...]
    overruled: tuple[str, ...]
    """Names that a file sets too, to something else than the shell, whose value is in force."""


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


def read_environment(
    files: Iterable[Path], environ: Mapping[str, str] = os.environ, *, may_be_new: bool = False
) -> Environment:
    """The variables of all files, a later file over an earlier one, the shell over both.

    A variable that the shell sets to nothing does not count as set. `may_be_new` lets the last file be
    one that does not exist yet. Raises ConfigError for a file or a line that cannot be read.
    """
    paths = tuple(files)
    found: dict[str, str] = {}
    for path in paths:
        if may_be_new and path == paths[-1] and not path.exists():
            continue
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--env-file {path} cannot be read: {_why(error)}") from error
        found.update(parse(text, str(path)))
    shell = {name: value for name, value in environ.items() if value or name not in found}
    overruled = tuple(sorted(name for name, value in found.items() if shell.get(name, value) != value))
    return Environment({**found, **shell}, paths, overruled)


def merged(files: Iterable[Path], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The values of `read_environment` alone."""
    return read_environment(files, environ).values


def environment_keys(environ: Mapping[str, str]) -> list[str]:
    """The task app's keys, the primary one first.

    >>> environment_keys({"ENVIRONMENT_API_KEY": "a", "ENVIRONMENT_API_KEY_ALIASES": "b, a"})
    ['a', 'b']
    """
    named = [environ.get(name, "").strip() for name in _KEY_NAMES]
    aliases = [key.strip() for key in environ.get("ENVIRONMENT_API_KEY_ALIASES", "").split(",")]
    return list(dict.fromkeys(key for key in (*named, *aliases) if key))


def write_variable(path: Path, name: str, value: str) -> None:
    """Set one variable in an env file, keep its other lines as they are, and make it readable by its owner only."""
    from headrace.artifacts.files import write_atomically

    path = path.resolve()  # a link stays a link
    lines = path.read_text().splitlines() if path.exists() else []
    is_it = re.compile(rf"\s*(?:export\s+)?{re.escape(name)}\s*=")
    kept = [line for line in lines if not is_it.match(line)]
    text = "".join(f"{line}\n" for line in (*kept, f"{name}={value}"))
    write_atomically(path, text.encode(), mode=0o600)


def _unquoted(value: str) -> str:
    is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"
