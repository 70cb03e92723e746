"""Ways to spread one training step over many ranks."""
