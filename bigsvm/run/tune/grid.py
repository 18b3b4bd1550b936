"""What a search tries: every C with every class weight, and of kernels every gamma."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.run.path import costs_of

ClassWeight = str | dict[str, float] | None
_MOST = 10_000  # candidates
_WITH_GAMMA = ("rbf", "poly", "sigmoid")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One point of the grid.

    gamma : None for kernels that have none
    """

    C: float
    class_weight: ClassWeight
    gamma: str | float | None

    def config(self, config: FitConfig) -> FitConfig:
        """The options of a fit at this point."""
        found = dataclasses.replace(config, C=self.C, lam=None, class_weight=self.class_weight)
        return found if self.gamma is None else dataclasses.replace(found, gamma=self.gamma)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return dataclasses.asdict(self)


def grid_of(config: FitConfig, Cs: Any, class_weights: Any, gammas: Any) -> list[Candidate]:
    """All candidates, C fastest.

    Cs : text such as '1e-3:1e3:7' or '0.1,1,10', or numbers
    class_weights : a sequence of None, 'balanced' or {label: weight}
    gammas : numbers or 'auto'; None for the one of `config`

    Raises UsageError: a list is empty or holds what it must not, or a gamma is given without a kernel that has one.
    """
    costs = costs_of(parse_costs(Cs) if isinstance(Cs, str) else Cs)
    if len(set(costs)) != len(costs):
        raise UsageError("a C occurs twice in the grid")
    has_gamma = config.kernel in _WITH_GAMMA
    if gammas is not None and not has_gamma:
        raise UsageError(f"the kernel {config.kernel} has no gamma", hint="leave --gammas out, or say --kernel rbf")
    of_kernel: Sequence[Any] = [config.gamma] if gammas is None else list(gammas)
    weights = [class_weights] if isinstance(class_weights, str | dict) or class_weights is None else list(class_weights)
    if not of_kernel or not weights:
        raise UsageError("the grid is empty", hint="give at least one gamma and one class weight")
    found = [
        Candidate(C, None if weight == "none" else weight, gamma if has_gamma else None)
        for gamma, weight, C in itertools.product(of_kernel, weights, sorted(costs))
    ]
    if len(found) > _MOST:
        raise UsageError(f"{len(found)} candidates are more than {_MOST}", hint="a coarser grid")
    for candidate in found:
        candidate.config(config)  # refuses a gamma that is none
    return found


def parse_costs(text: str) -> list[float]:
    """'LOW:HIGH:N' is a grid of N values even in the logarithm, ends included; else numbers between commas."""
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        low, high, n = text.split(":")
        first, last, number = float(low), float(high), int(n)
    except ValueError:
        raise UsageError(f"{text!r} is neither LOW:HIGH:N nor numbers between commas", hint="--Cs 1e-3:1e3:7") from None
    if not (0 < first < math.inf and 0 < last < math.inf and 1 <= number <= _MOST) or (number == 1 and first != last):
        raise UsageError(f"{text!r} is no grid: LOW and HIGH are positive, N counts the values", hint="1e-3:1e3:7")
    exponents = np.linspace(math.log10(first), math.log10(last), number)
    return [float(f"{10.0**exponent:.12g}") for exponent in exponents]
