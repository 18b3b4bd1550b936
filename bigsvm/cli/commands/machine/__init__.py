"""Commands about this machine: caches, capabilities, shell completion."""
