"""How the Python functions tell of failures: in the words and the exceptions of Python."""
