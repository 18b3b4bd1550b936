"""Commands that present runs, models and registries."""
