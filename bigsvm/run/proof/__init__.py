"""What is claimed of a model, while it is fitted and afterwards."""
