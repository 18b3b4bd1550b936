"""What a child process is asked to do, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Job:
    """What one child is to do."""

    solver: str
    folder: str
    n_features: int
    loss: str
    C: float
    bias: str
    rung: float  # tol, -e, iterations or epochs
    cores: int
    limit_s: float
    memory: int = 0  # bigsvm: budget in bytes
    scratch: str = ""
    method: str = ""  # bigsvm's --solver, LIBLINEAR's -s; '': the usual one for the loss


@dataclass
class Point:
    """Weights that were reached, and their price."""

    rung: float
    seconds: float
    w: np.ndarray
    passes: float | None = None
    cpu_seconds: float | None = None  # of all threads, for the same work as `seconds`; None: not counted


def before_training(seconds: dict[str, float]) -> float:
    """Of a fit of ours what is in nobody's seconds: its plan, compilation, and reading or copying the rows in."""
    return sum(seconds.get(name, 0.0) for name in ("plan", "compile", "staging"))
