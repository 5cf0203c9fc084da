"""Models that jobs ended with, and the operator's aliases."""
