"""Rows in a bucket or behind http: their objects are copied once to the scratch folder, and verified."""
