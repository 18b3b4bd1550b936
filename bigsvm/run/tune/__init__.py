"""Hyperparameter search by cross-validation: folds, grid, training, held-out scores, and the choice."""
