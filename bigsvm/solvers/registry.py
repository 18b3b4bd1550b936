"""Solvers by name, and which problems each one solves."""

from __future__ import annotations

import dataclasses
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.errors import Unsupported, UsageError
from bigsvm.solvers.base import Solver
from bigsvm.solvers.dual_cd import DualCD

SOLVERS: dict[str, type[Any]] = {solver.name: solver for solver in (DualCD,)}


def choose_solver(config: FitConfig) -> tuple[Solver, str]:
    """The solver that `config` names (or 'auto' picks), with its options, and why.

    Raises
    ------
    UsageError : no solver of that name, or an option that it does not have.
    Unsupported : the solver does not solve that loss and bias; names the ones that do.
    """
    able = [s.name for s in SOLVERS.values() if config.loss in s.losses and config.bias in s.biases]
    if config.solver == "auto":
        if not able:
            raise Unsupported(f"no solver for loss {config.loss!r} with bias {config.bias!r}", hint=_all())
        name, why = able[0], f"the solver for {config.loss} with bias {config.bias}"
    elif config.solver in SOLVERS:
        name, why = config.solver, "as asked"
    else:
        raise UsageError(f"unknown solver {config.solver!r}", hint=f"one of auto, {', '.join(SOLVERS)}")
    if name not in able:
        raise Unsupported(
            f"solver {name!r} does not solve loss {config.loss!r} with bias {config.bias!r}",
            hint=f"solvers that do: {', '.join(able)}" if able else _all(),
        )
    if config.stop == "paper":
        raise Unsupported(f"solver {name!r} has no stop rule of a paper's", hint="use --stop gap")
    return _with_options(SOLVERS[name], config.solver_options), why


def _with_options(solver: type[Any], options: dict[str, Any]) -> Solver:
    known: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(solver)}
    values = {}
    for key, text in options.items():
        if key not in known:
            raise UsageError(f"{solver.__name__} has no option {key!r}", hint=f"it has: {', '.join(known)}")
        try:
            values[key] = type(known[key])(text)
        except ValueError as error:
            raise UsageError(f"option {key}: {error}") from error
    try:
        return solver(**values)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _all() -> str:
    rows = (f"{s.name}: {'/'.join(s.losses)} with bias {'/'.join(s.biases)}" for s in SOLVERS.values())
    return "; ".join(rows)
