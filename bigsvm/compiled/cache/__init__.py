"""The cache of compiled functions on disk: those of the installation, and those that this user has compiled."""
