"""From `module:object` or `path.py:object` to the task app that it names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from headrace.errors import ConfigError
from headrace.task_app.app import TaskApp


def load(target: str) -> TaskApp:
    """The task app named by `target`; raises ConfigError that says what is wrong with it.

    Without `:object` the name is `app`. Modules are looked up in the working directory too.
    """
    place, _, attribute = target.partition(":")
    attribute = attribute or "app"
    module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    found = getattr(module, attribute, None)
    if not isinstance(found, TaskApp):
        what = "has no such name" if found is None else f"holds a {type(found).__name__} there, no TaskApp"
        raise ConfigError(f"{target}: {place} {what} ({attribute})")
    return found


def _from_name(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import {name!r}: {error}") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"{path} does not exist")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # the file's neighbours, as `python file.py` would have them
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (ModuleNotFoundError, SyntaxError) as error:
        raise ConfigError(f"cannot load {path}: {error}") from error
    return module
