"""The grid of a search: every C with every class weight and, for kernels, every gamma."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.problem.class_weights import plain_numbers
from bigsvm.problem.kernel import PARAMETERS
from bigsvm.run.path import costs_of

ClassWeight = str | dict[str, float] | None
_MOST = 10_000  # candidates


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A point of the grid.

    gamma : None for kernels without gamma
    """

    C: float
    class_weight: ClassWeight
    gamma: str | float | None

    def config(self, config: FitConfig) -> FitConfig:
        """The options of a fit at this point of the grid."""
        found = dataclasses.replace(config, C=self.C, lam=None, class_weight=self.class_weight)
        return found if self.gamma is None else dataclasses.replace(found, gamma=self.gamma)

    def document(self) -> dict[str, Any]:
        """The point as JSON."""
        return dataclasses.asdict(self)


def grid_of(config: FitConfig, Cs: Any, class_weights: Any, gammas: Any) -> list[Candidate]:
    """All candidates; C varies fastest.

    Cs : text such as '1e-3:1e3:7' or '0.1,1,10', or numbers
    class_weights : a sequence of None, 'balanced' or {label: weight}
    gammas : numbers or 'auto', or a single one of them; None for the gamma of `config`

    Raises UsageError if a list is empty or holds an invalid value, or a gamma is given for a kernel without gamma.
    """
    costs = costs_of(parse_costs(Cs) if isinstance(Cs, str) else Cs)
    if len(set(costs)) != len(costs):
        raise UsageError("a C occurs twice in the grid")
    has_gamma = "gamma" in PARAMETERS[config.kernel]
    if gammas is not None and not has_gamma:
        raise UsageError(f"the kernel {config.kernel} has no gamma", hint="leave --gammas out, or use --kernel rbf")
    alone = isinstance(gammas, str | int | float)
    of_kernel: Sequence[Any] = [config.gamma] if gammas is None else [gammas] if alone else list(gammas)
    weights = [class_weights] if isinstance(class_weights, str | dict) or class_weights is None else list(class_weights)
    if not of_kernel or not weights:
        raise UsageError("the grid is empty", hint="give at least one gamma and one class weight")
    weights = [plain_numbers(weight) if isinstance(weight, Mapping) else weight for weight in weights]
    found = [
        Candidate(C, None if weight == "none" else weight, gamma if has_gamma else None)
        for gamma, weight, C in itertools.product(of_kernel, weights, sorted(costs))
    ]
    if len(found) > _MOST:
        raise UsageError(f"{len(found)} candidates are more than {_MOST}", hint="choose a coarser grid")
    for candidate in found:
        candidate.config(config)  # raises UsageError for an invalid gamma
    return found


def parse_costs(text: str) -> list[float]:
    """Parse the values of C.

    'LOW:HIGH:N' gives N values with equal steps of the logarithm, both ends included.  'LOW:HIGH:BASE^POWER' goes from
    LOW to HIGH by that factor.  Otherwise the text is numbers between commas.  A number may be a power, such as 2^-5.
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
        raise UsageError(f"{text!r} is not a grid: LOW and HIGH must be positive", hint="such as 1e-3:1e3:7")
    if "^" in third:
        if not (1 < step < math.inf and first <= last):
            raise UsageError(
                f"{text!r} is not a grid: its factor must be above 1, and LOW at most HIGH",
                hint="such as 2^-5:2^15:2^2",
            )
        number = math.floor(math.log(last / first) / math.log(step) + 1e-9) + 1
        return [first * step**k for k in range(min(number, _MOST + 1))]
    if step != int(step) or not 1 <= step <= _MOST or (step == 1 and first != last):
        raise UsageError(f"{text!r} is not a grid: N must be the number of its values", hint="such as 1e-3:1e3:7")
    exponents = np.linspace(math.log10(first), math.log10(last), int(step))
    return [float(f"{10.0**exponent:.12g}") for exponent in exponents]


def _number(text: str) -> float:
    """Parse a number, or a power such as 2^-5.  Raises ValueError, OverflowError."""
    base, power, exponent = text.partition("^")
    found = float(base) ** float(exponent) if power else float(base)
    if not isinstance(found, float):  # a fractional power of a negative base is complex
        raise ValueError(text)
    return found
