"""Answering chat completions with the organisation's own models."""
