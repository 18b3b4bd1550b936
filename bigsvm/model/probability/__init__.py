"""Probabilities of classes from scores: the document of a calibration, its application, and its file."""
