"""What tests and lessons share: strategies, and mutants that a test must reject."""
