"""Training: text, steps, optimiser, checkpoints, and the commands `train` and `generate`."""
