"""Linear solvers as their papers have them."""
