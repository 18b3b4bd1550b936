"""Tables of named columns: delimited text and Arrow files, with columns that are text among them."""
