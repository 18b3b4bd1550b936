"""Ingest: writing a sealed store from text, arrays, tables, collections or other stores."""
