"""Stores, models and copies that mean harm: the parts of `scripts/stress/hostile_test.py`."""
