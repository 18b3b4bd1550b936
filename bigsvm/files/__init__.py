"""Files that are complete or absent, locks, checks of paths, sealed documents: nothing here knows of SVMs."""
