"""What a run, a model or a registry says to people: a page, a text for the terminal, curves, a table that follows."""
