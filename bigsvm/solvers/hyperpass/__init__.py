"""Steps between the hyperplanes of rows."""
