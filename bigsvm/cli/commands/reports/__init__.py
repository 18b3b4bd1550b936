"""Commands that show runs, models and registries to people."""
