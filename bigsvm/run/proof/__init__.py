"""Certificates: proofs of a duality gap, during a fit (provers) and for a saved model (certify)."""
