"""Commands about stores: ingest, seal, verify, dump."""
