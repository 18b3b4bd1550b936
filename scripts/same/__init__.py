"""The cases of `scripts/same_bytes.py`, how what they write is compared, and the process that runs them."""
