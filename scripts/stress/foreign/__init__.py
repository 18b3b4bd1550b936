"""Programs that write files by other libraries, each in an environment of its own."""
