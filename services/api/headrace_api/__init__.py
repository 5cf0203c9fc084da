"""The HTTP API, and beside it the recorder (`python -m headrace_api.recorder`)."""
