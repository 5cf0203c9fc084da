"""Whether the API is alive, and whether it can serve."""
