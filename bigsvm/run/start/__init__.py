"""A fit that starts from an earlier model: which rows that knew, and what of it is taken over."""
