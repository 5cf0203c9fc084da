"""Headrace: self-hosted reinforcement-learning post-training over HTTP task apps.

This package holds what the services share. A task-app author needs only
`headrace.task_app`; importing `headrace` itself loads nothing heavy.
"""

__version__ = "0.1.0"
