"""Random problems, an evaluator and a reference of their own, and a judge: the parts of `scripts/cross_check.py`."""
