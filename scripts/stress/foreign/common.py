"""What writers share: the rows, and how a file is told of.  NumPy and the standard library alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

N, D = 120, 8


def rows() -> tuple[np.ndarray, np.ndarray]:
    """(X of float64 with many zeros, y of 0 and 1), the same for everybody."""
    rng = np.random.default_rng(5)
    X = np.where(rng.random((N, D)) < 0.4, np.round(rng.standard_normal((N, D)), 6), 0.0)
    return X, (X @ np.arange(1, D + 1) > 0).astype(np.int64)


def tell(name: str, read: bool = True, labels: str = "numbers", zeros: bool = False, **options: Any) -> None:
    """One line for the reader: the file, whether it is to be read or refused, how labels look, options to open it."""
    line = {"name": name, "read": read, "labels": labels, "zeros": zeros, "options": options}
    sys.stdout.write(json.dumps(line) + "\n")


def run(write: Callable[[Path], None]) -> None:
    """Call a writer with the folder of the command line."""
    write(Path(sys.argv[1]))
