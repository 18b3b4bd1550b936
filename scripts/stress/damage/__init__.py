"""Damage to stores, copies, manifests and models: the parts of `scripts/damage_test.py`."""
