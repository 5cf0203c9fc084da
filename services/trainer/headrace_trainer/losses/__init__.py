"""Losses as pure functions on flat tensors of trained tokens; metrics are returned, never logged."""
