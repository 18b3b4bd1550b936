"""The content of reports: sections about a run, a model, a model on other rows, and a registry."""
