"""Damage to stores, copies, manifests and models: the parts of `scripts/stress/damage_test.py`."""
