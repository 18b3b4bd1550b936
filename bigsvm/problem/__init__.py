"""The optimisation problem, its losses and kernels, and the certificate of a duality gap."""
