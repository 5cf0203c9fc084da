"""Where jobs may run."""
