"""What solvers in w share: the state, passes over rows, dual points, line searches; and newton."""
