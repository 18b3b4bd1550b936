"""Rows from elsewhere become a store."""
