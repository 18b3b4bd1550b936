"""What a fit keeps on the scratch disk, and shares with others."""
