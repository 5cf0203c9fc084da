"""Rollouts and the traces of their attempts."""
