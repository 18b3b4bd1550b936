"""Commands that train: plan, fit, resume, tune, demo."""
