"""Sequential minimal optimisation, by working sets and by pairs."""
