"""Checks of a task app before a job is submitted."""
