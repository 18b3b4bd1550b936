"""Commands that fit."""
