"""Trained models: their representation, their files, prediction with them, and registries of versions."""
