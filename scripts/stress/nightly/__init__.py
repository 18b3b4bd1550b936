"""The parts of nights.py."""
