"""Appending rows to a sealed store: new files are written aside, then the manifest is renamed into place."""
