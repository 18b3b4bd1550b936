"""Where `ingest` takes rows from, other than collections: text, arrays, files of arrays, stores."""
