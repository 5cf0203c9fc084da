"""The trainer: claims jobs, plans rollouts, learns from trajectories, publishes weights; and the evaluator."""
