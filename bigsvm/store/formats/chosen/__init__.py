"""Rows that are chosen of a store by what its columns say, and labels that are made of several columns."""
