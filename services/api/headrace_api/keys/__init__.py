"""Bearer keys of the API and environment keys of task apps."""
