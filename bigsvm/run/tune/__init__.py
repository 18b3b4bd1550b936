"""A search by cross-validation: folds, the grid, its models, their held-out scores, and what is chosen."""
