"""Workers of a cluster before there are any: what each would hold, and what a pass would take."""
