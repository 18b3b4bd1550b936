"""Rows in a bucket, or behind http: objects are copied to the scratch folder once, each one verified."""
