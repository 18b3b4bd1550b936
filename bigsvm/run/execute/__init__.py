"""Where work runs: here, in processes, on a cluster; with how much memory."""
