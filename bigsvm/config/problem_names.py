"""Names of the losses and kernels that a fit can be asked for."""

from __future__ import annotations

NU_LOSSES = ("nu_svc", "nu_svr", "one_class")
"""Losses whose margin, or epsilon, is set by nu: kernel problems, also where the kernel is linear."""
JOINT_RULE, JOINT_LOSS = "crammer-singer", "crammer_singer"
"""How classes are told apart by one loss of all of them, and that loss: each stands for the other."""
LOSSES = ("hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive", JOINT_LOSS, *NU_LOSSES)
KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")
