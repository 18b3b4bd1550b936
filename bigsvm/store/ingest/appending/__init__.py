"""New rows that join a sealed store: written aside, then one rename of the manifest."""
