"""What is told of a run, a model, rows that it was tried on, and a registry: sections of facts."""
