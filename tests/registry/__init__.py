"""Registries: what is bad never becomes current, readers see whole models, crashes and rollbacks lose nothing."""
