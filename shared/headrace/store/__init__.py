"""The SQL store: truth of jobs, plans, outcomes, checkpoints and the ledger. Only api and trainer import it."""
