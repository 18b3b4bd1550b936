"""Rosen's gradient projection."""
