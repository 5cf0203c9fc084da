"""Jobs: submission, reading, cancelling."""
