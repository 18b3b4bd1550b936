"""Probabilities of classes from scores: what a calibration is, and its file beside a model."""
