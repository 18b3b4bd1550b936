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
    gammas : numbers or 'auto', or one of them; None for the one of `config`

    Raises UsageError: a list is empty or holds what it must not, or a gamma is given without a kernel that has one.
    """
    costs = costs_of(parse_costs(Cs) if isinstance(Cs, str) else Cs)
    if len(set(costs)) != len(costs):
        raise UsageError("a C occurs twice in the grid")
    has_gamma = config.kernel in _WITH_GAMMA
    if gammas is not None and not has_gamma:
        raise UsageError(f"the kernel {config.kernel} has no gamma", hint="leave --gammas out, or use --kernel rbf")
    alone = isinstance(gammas, str | int | float)
    of_kernel: Sequence[Any] = [config.gamma] if gammas is None else [gammas] if alone else list(gammas)
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
    """Values of C as they are typed.

    'LOW:HIGH:N' is a grid of N values even in the logarithm, ends included; 'LOW:HIGH:BASE^POWER' goes from LOW up to
    HIGH by that factor; else numbers between commas.  A number may be a power, such as 2^-5.
    """
    try:
        if ":" not in text:
            return [_number(part) for part in text.split(",")]
        low, high, third = text.split(":")
        first, last, step = _number(low), _number(high), _number(third)
    except (ValueError, OverflowError, ZeroDivisionError):
        what = f"{text!r} is neither LOW:HIGH:N nor numbers between commas"
        raise UsageError(what, hint="--Cs 1e-3:1e3:7, or 2^-5:2^15:2^2") from None
    if not (0 < first < math.inf and 0 < last < math.inf):
        raise UsageError(f"{text!r} is no grid: LOW and HIGH must be positive", hint="1e-3:1e3:7")
    if "^" in third:
        if not (1 < step < math.inf and first <= last):
            raise UsageError(
                f"{text!r} is no grid: its factor must be above 1, and LOW not above HIGH", hint="2^-5:2^15:2^2"
            )
        number = math.floor(math.log(last / first) / math.log(step) + 1e-9) + 1
        return [first * step**k for k in range(min(number, _MOST + 1))]
    if step != int(step) or not 1 <= step <= _MOST or (step == 1 and first != last):
        raise UsageError(f"{text!r} is no grid: N counts its values", hint="1e-3:1e3:7")
    exponents = np.linspace(math.log10(first), math.log10(last), int(step))
    return [float(f"{10.0**exponent:.12g}") for exponent in exponents]


def _number(text: str) -> float:
    """A number, or a power such as 2^-5.  Raises ValueError, OverflowError."""
    base, power, exponent = text.partition("^")
    found = float(base) ** float(exponent) if power else float(base)
    if not isinstance(found, float):  # of a negative base
        raise ValueError(text)
    return found
