"""Durable files: config snapshots, datasets, checkpoints, weights, traces."""
