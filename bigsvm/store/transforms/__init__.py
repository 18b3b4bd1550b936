"""Rows changed as they are read: chosen, normalized, scaled.  The model keeps how."""
