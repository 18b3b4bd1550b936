"""Files that are whole or not there, locks, names of paths, sealed documents: no word of SVMs."""
