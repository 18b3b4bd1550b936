"""What `--solver auto` prefers, and why: by loss, bias and shape, from the table of `scripts/bench_solvers.py`.

Preferences come in order; the first one whose plan fits the memory is taken.
"""

from __future__ import annotations

from typing import NamedTuple

from bigsvm.config import FitConfig
from bigsvm.solvers.base import DataShape

_NARROW = 1000  # features: up to here a Newton pass costs no more than the sweeps that coordinate descent needs
_ROWS_PER_FEATURE = 4


class Preference(NamedTuple):
    """A solver by name, and the reason in words for the plan."""

    name: str
    why: str


def preferences(config: FitConfig, shape: DataShape) -> list[Preference]:
    """Solvers for the loss and bias of `config` on data of such a shape, the best first."""
    d, n = shape.n_features, shape.n_samples
    narrow = d <= _NARROW and n >= _ROWS_PER_FEATURE * d
    free = config.bias == "free"
    found = []
    if config.loss == "squared_hinge":
        if narrow:
            why = f"{d:,} features are few for {n:,} rows: a handful of passes, whatever C is"
            found.append(Preference("newton", why))
        if free:
            found.append(Preference("pcd", f"the bias is free, and {d:,} features are many"))
        else:
            why = "its Hessian does not fit the memory" if narrow else f"{d:,} features are many"
            found.append(Preference("dcd", f"{why}: dual coordinate descent on rows that stream"))
    elif config.loss == "hinge":
        if free:
            found.append(Preference("hyperpass", "the one for the hinge loss with a free bias"))
        else:
            found.append(Preference("dcd", "for the hinge loss: dual coordinate descent on rows that stream"))
    return found
