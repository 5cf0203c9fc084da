"""The API over httpx, for the CLI and the dashboard."""
