"""Pages that are written from the program: the reference of commands and names, and man pages."""
