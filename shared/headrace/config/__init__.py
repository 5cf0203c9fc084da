"""Run configs: one pydantic model per TOML section, each key documented under the field.

Settings of a process (addresses, secrets) are not here: see `headrace.settings`.
"""
