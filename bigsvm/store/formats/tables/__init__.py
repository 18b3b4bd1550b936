"""Tables of named columns, some of which may hold text: delimited text and Arrow files."""
