"""What tests of stores and solvers may use, ours and those of others."""
