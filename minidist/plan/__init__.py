"""What training would take, worked out before anything is run: numbers in, numbers out."""
