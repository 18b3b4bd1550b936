"""Models at work: predictions, scores, evaluation."""
