"""The command line: options, exit codes, what a person or a script reads."""
