"""Curves: points from records and scores, drawn as SVG or in the characters of a terminal."""
