"""Numbers side by side in vector registers, as values of compiled code; and moves of whole rows."""
