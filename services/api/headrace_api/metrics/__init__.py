"""Metric points of a job."""
