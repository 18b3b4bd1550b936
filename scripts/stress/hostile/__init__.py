"""Stores, models and copies that mean harm: the parts of `scripts/hostile_test.py`."""
