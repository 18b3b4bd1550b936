"""A cluster of processes, and an ingest on it of which parts are killed."""
