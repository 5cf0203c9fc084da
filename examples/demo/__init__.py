"""What the demos share: a stack of their own, jobs submitted like a user's, and an honest report."""
