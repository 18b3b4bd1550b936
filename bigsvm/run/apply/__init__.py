"""Applying models: scoring, predictions and their files, evaluation, calibration, inspection."""
