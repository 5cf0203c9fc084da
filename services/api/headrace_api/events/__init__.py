"""Events of a job, as pages and as a stream."""
