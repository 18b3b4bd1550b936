"""Reports on runs, models and registries: HTML pages, text for the terminal, charts, and a live table."""
