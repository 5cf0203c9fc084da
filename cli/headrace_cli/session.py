"""What one run of `headrace train` was called with, and where it says what it does."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from headrace.contracts.job import JobType
from headrace_cli.asking import can_ask, choose
from headrace_cli.backend import home_folder
from headrace_cli.discovery import find_configs, find_env_files, last_used
from headrace_cli.envfiles import Environment, read_environment
from headrace_cli.render import printable

Json = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What `headrace train` and `headrace eval` were called with."""

    configs: tuple[Path, ...]
    idempotency: str | None
    dry_run: bool
    poll: bool
    poll_timeout: float
    poll_interval: float
    as_json: bool
    backend: str | None
    env_file: tuple[Path, ...]
    allow_experimental: bool | None = None
    mint: bool = False


@dataclass
class Session:
    """The options with every choice made, and the run's progress so far."""

    options: Options
    environment: Environment
    configs: tuple[Path, ...]
    can_ask: bool
    base_line: str = ""
    """The API and its key's beginning, as the transcript says them."""
    stage: str = "nothing was submitted"
    """What an interruption means for the job from here on."""

    @property
    def environ(self) -> dict[str, str]:
        return self.environment.values

    @property
    def home(self) -> Path:
        return home_folder(self.environ)

    @property
    def allow_experimental(self) -> bool | None:
        """None leaves it to the API."""
        if self.options.allow_experimental is not None:
            return self.options.allow_experimental
        asked = self.environ.get("SDK_EXPERIMENTAL", "").strip().lower()
        return True if asked in ("1", "true", "yes", "on") else None

    def say(self, text: str) -> None:
        """A line of the transcript: on stdout, on stderr when stdout is for machines or for a payload."""
        is_taken = self.options.as_json or self.options.dry_run
        click.echo("\n".join(printable(line) for line in text.split("\n")), err=is_taken)

    def warn(self, text: str) -> None:
        click.echo(f"{click.style('warning:', fg='yellow')} {printable(text)}", err=True)

    def answer(self, value: Json) -> None:
        """One line for machines; nothing without `--json`."""
        if self.options.as_json:
            click.echo(json.dumps(value, ensure_ascii=False, default=str))


def opened(options: Options, wanted: JobType | None) -> Session:
    """Make the choices that come before everything else: the configs and the env files.

    Raises UsageError, which names the option, where a choice is missing and nobody can be asked.
    """
    asks = can_ask() and not options.as_json
    configs = options.configs or (_choose_config(options, wanted, asks),)
    files = options.env_file
    if not files and asks:
        files = _choose_env_file(configs)
    environment = read_environment(files, os.environ, may_be_new=options.mint)
    return Session(options, environment, configs, asks)


def introduce(session: Session) -> None:
    """Say which env files are used, and which of their variables the shell has set otherwise."""
    for path in session.environment.files:
        session.say(f"Using env file: {path}")
    if session.environment.overruled:
        session.say(f"The shell's value wins over the file's: {', '.join(session.environment.overruled)}")


def usage(message: str) -> click.UsageError:
    """A wrong call: shown with the command's usage line, exit code 2."""
    return click.UsageError(message, click.get_current_context(silent=True))


def _choose_config(options: Options, wanted: JobType | None, asks: bool) -> Path:
    home = home_folder(os.environ)
    found = find_configs(Path(), wanted, last_used(home))
    kind = f"{wanted} " if wanted else ""
    if not found:
        raise usage(f"missing option '--config': no {kind}config (*.toml) lies below {Path.cwd()}")
    if not asks:
        names = _some([str(path) for path, _ in found])
        raise usage(f"missing option '--config': without a terminal nothing is asked; found here: {names}")
    chosen = choose("Configs", [f"{path} ({job_type})" for path, job_type in found])
    assert chosen is not None
    return found[chosen][0]


def _choose_env_file(configs: Sequence[Path]) -> tuple[Path, ...]:
    found = find_env_files(Path(), configs)
    if not found:
        return ()
    chosen = choose("Env files", [str(path) for path in found], none="none: the shell's variables alone")
    return () if chosen is None else (found[chosen],)


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
