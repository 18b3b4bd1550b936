"""Commands that use models."""
