"""Run configs: one pydantic model per TOML section, each key documented under the field.

Settings of a process (addresses, secrets) are not here: see `headrace.settings`.
"""

from headrace.config.checking import check
from headrace.config.editor_schema import json_schema
from headrace.config.explanation import explain

__all__ = ["check", "explain", "json_schema"]
