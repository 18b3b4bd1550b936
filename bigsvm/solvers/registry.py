"""Solvers by name, and which problems each one solves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from bigsvm.config import SOLVER_TABLE, FitConfig
from bigsvm.errors import Unsupported, UsageError
from bigsvm.solvers.auto import Preference, preferences
from bigsvm.solvers.base import DataShape, Solver


def _loaded(where: str) -> type[Any]:
    module, name = where.rsplit(".", 1)
    solver: type[Any] = getattr(import_module(f"bigsvm.solvers.{module}"), name)
    return solver


SOLVERS: dict[str, type[Any]] = {name: _loaded(solver.where) for name, solver in SOLVER_TABLE.items()}


class Choice(NamedTuple):
    """A solver with its options.

    why : the reason for the choice, in words, for the plan
    kept_bytes : memory beyond the solver's least, for kept rows, without which it is not worth choosing
    """

    solver: Solver
    why: str
    kept_bytes: int = 0


def choose_solvers(config: FitConfig, shape: DataShape, in_memory: bool = False) -> list[Choice]:
    """The solver that `config` names, with its options; for 'auto' all solvers that will do, the best first.

    in_memory : the budget holds all rows

    Raises
    ------
    UsageError : no solver of that name, or an option that it does not have.
    Unsupported : the solver does not solve that loss and bias, or not on data of such a shape; names those that do.
    """
    able = able_solvers(config, shape)
    if config.solver == "auto":
        return _automatic_choices(config, shape, in_memory, able)
    if config.solver not in SOLVERS:
        raise UsageError(f"unknown solver {config.solver!r}", hint=f"one of auto, {', '.join(SOLVERS)}")
    return [_named_choice(config, shape, able)]


def _others(config: FitConfig, shape: DataShape, able: list[str], refused: Sequence[str] = ()) -> str:
    """The hint that names solvers that solve the problem; '' if those that are `refused` are the only ones.

    able : the solvers that solve it with their default options, of which some may be refused with those of --set
    """
    told = [name for name in able if shape.shards == 1 or SOLVERS[name].in_shards]
    if not told:
        return _all(config)
    others = [name for name in told if name not in refused]
    return f"solvers that do: {', '.join(others)}" if others else ""


def _automatic_choices(
    config: FitConfig, shape: DataShape, in_memory: bool, able: list[str]
) -> list[Choice]:  # fmt: skip
    """The preferences of 'auto' among the solvers that are `able`.

    Raises UsageError and Unsupported as `choose_solvers`.
    """
    knowing = [name for name in able if set(config.solver_options) <= _options_of(SOLVERS[name]).keys()]
    found = [p for p in preferences(config, shape, in_memory) if p.name in knowing]
    found += [Preference(name, "the first that can") for name in knowing if not found]
    if not able:
        raise _no_solver(config, shape)
    if not found:
        options = ", ".join(config.solver_options)
        raise UsageError(f"no solver of {', '.join(able)} has options {options}", hint="name the solver with -s")
    choices = [Choice(_made(SOLVERS[p.name], config, p.options), p.why, p.kept_bytes) for p in found]
    # `able_solvers` asked solvers with default options; those that the user set may be refused all the same.
    refusals = [choice.solver.refusal(shape) for choice in choices]
    if None not in refusals:
        others = _others(config, shape, able, [choice.solver.name for choice in choices])
        raise Unsupported(str(refusals[0]), hint="leave --set out" + (f", or: {others}" if others else ""))
    return [choice for choice, refusal in zip(choices, refusals, strict=True) if refusal is None]


def _no_solver(config: FitConfig, shape: DataShape) -> Unsupported:
    """The error for a problem that no solver can solve.  Its hint names what to change."""
    what = f"loss {config.loss!r} with bias {config.bias!r}"
    with_kernel = f" and the {config.kernel} kernel" if config.kernel != "linear" else ""
    linear_pairs = config.multi_class == "ovo" and not config.of_kernel
    if linear_pairs and able_solvers(dataclasses.replace(config, multi_class=None), shape):
        return Unsupported(
            f"no linear solver for {what} tells pairs of classes apart (--multi-class ovo)",
            hint="leave --multi-class out, for each class against the rest; or -s smo --loss hinge, whose bias "
            "is free, for pairs",
        )
    with_kernel += " of rows with several labels" if shape.label_sets else ""
    of_paper = " and a stop rule of its paper's (--stop paper)" if config.stop == "paper" else ""
    if config.warm_start is not None and able_solvers(dataclasses.replace(config, warm_start=None), shape):
        rows = " of sparse rows whose means are taken off" if shape.centred else ""
        what = f"every solver for {what}{with_kernel}{rows}{of_paper} starts from 0"
        return Unsupported(what, hint="leave --warm-start out")
    if shape.centred and able_solvers(config, dataclasses.replace(shape, centred=False)):
        what = f"no solver for {what} takes the means of sparse rows off without filling them up"
        squared = "squared_epsilon_insensitive" if shape.regression else "squared_hinge"
        free = "--multi-class ovr" if shape.joint else f"--bias free, --loss {squared}"
        return Unsupported(what, hint=f"use {free}, or --scale maxabs")
    return Unsupported(f"no solver for {what}{with_kernel}{of_paper}", hint=_all(config))


def _named_choice(config: FitConfig, shape: DataShape, able: list[str]) -> Choice:
    """The solver that `config` names.  able : those that solve the problem

    Raises Unsupported if it cannot solve the problem, UsageError for an option that it does not have.
    """
    name = config.solver
    solver, others = SOLVERS[name], _others(config, shape, able)
    if not _takes_rows(solver, config):
        what = f"the {config.kernel} kernel" if config.kernel != "linear" else "pairs of classes"
        raise Unsupported(f"solver {name!r} is linear, with one class against the rest: not {what}", hint=others)
    if config.loss not in solver.losses or config.bias not in solver.biases:
        solves = f"solves {', '.join(solver.losses)} with bias {', '.join(solver.biases)}"
        what = f"not loss {config.loss!r} with bias {config.bias!r}"
        raise Unsupported(f"solver {name!r} {solves}, {what}", hint=others)
    if config.warm_start is not None and not solver.starts_from:
        raise Unsupported(f"solver {name!r} starts from 0: it takes no --warm-start", hint=others)
    if config.stop == "paper" and not solver.paper_rule:
        raise Unsupported(f"solver {name!r} has no stop rule of a paper's", hint=f"{others}; or use --stop gap")
    if shape.centred and not solver.centres:
        what = f"solver {name!r} cannot take the means of sparse rows off (--scale standard) with bias {config.bias!r}"
        free = "use --multi-class ovr, or --scale maxabs" if shape.joint else "use --bias free"
        raise Unsupported(what, hint=f"{others}; or {free}" if able else free)
    if shape.label_sets and not solver.label_sets:
        what = f"solver {name!r} is for rows with one label, and these have several (--labels)"
        raise Unsupported(what, hint=others)
    made = _made(solver, config)
    unlimited = config.max_passes is None and config.max_time is None
    # pegasos: the rule of its paper is a number of steps, and 0 stands for none asked for.
    if config.stop == "paper" and unlimited and getattr(made, "iterations", 1) == 0:
        what = f"solver {name!r} ends by --stop paper after a number of steps, and none is asked for"
        raise Unsupported(what, hint="say --set iterations=N")
    refusal = made.refusal(shape)
    if refusal is not None:
        raise Unsupported(refusal, hint=_others(config, shape, able, [name]))
    return Choice(made, "as asked")


def able_solvers(config: FitConfig, shape: DataShape) -> list[str]:
    """Names of the solvers that solve the problem of `config` on data of such a shape."""
    return [
        name
        for name, solver in SOLVERS.items()
        if config.loss in solver.losses
        and config.bias in solver.biases
        and _takes_rows(solver, config)
        and (solver.paper_rule or config.stop == "gap")
        and (solver.starts_from or config.warm_start is None)
        and (solver.centres or not shape.centred)
        and (solver.label_sets or not shape.label_sets)
        and _told(solver(), config).refusal(shape) is None
    ]


def _takes_rows(solver: type[Any], config: FitConfig) -> bool:
    """Whether a solver supports the kernel and the multi-class scheme of `config`.

    Of the linear solvers none trains pairs of classes; those with several kernels do.
    """
    return config.kernel in solver.kernels and (config.multi_class != "ovo" or len(solver.kernels) > 1)


def _options_of(solver: type[Any]) -> dict[str, Any]:
    """Name -> default of the options that --set takes."""
    return {f.name: f.default for f in dataclasses.fields(solver) if not f.metadata.get("asked")}


def _made(solver: type[Any], config: FitConfig, preferred: tuple[tuple[str, Any], ...] = ()) -> Solver:
    """A solver with the options of --set, and with the config itself if it declares a field for that.

    preferred : options that apply unless the user set them
    """
    return _told(_with_options(solver, {**dict(preferred), **config.solver_options}), config)


def _told(made: Any, config: FitConfig) -> Any:
    """The solver with `config` in each field that is marked "asked"; most solvers have none."""
    wants = [f.name for f in dataclasses.fields(made) if f.metadata.get("asked")]
    return dataclasses.replace(made, **dict.fromkeys(wants, config)) if wants else made


def _with_options(solver: type[Any], options: dict[str, Any]) -> Solver:
    """The solver with these options of --set.  Raises UsageError for an unknown option, or a value that it refuses."""
    known, values = _options_of(solver), {}
    for key, text in options.items():
        if key not in known:
            raise UsageError(f"{solver.__name__} has no option {key!r}", hint=f"it has: {', '.join(known)}")
        try:
            values[key] = _parsed(type(known[key]), text)
        except (ValueError, TypeError, OverflowError) as error:  # int of an infinite number overflows
            raise UsageError(f"option {key}: {error}") from error
    try:
        return solver(**values)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _parsed(kind: type[Any], text: Any) -> Any:
    """What was typed, as a value of the option's type.  Raises ValueError."""
    if kind in (int, float) and isinstance(text, bool):
        raise ValueError(f"a number, not {str(text).lower()}")
    if kind is int and isinstance(text, float) and not text.is_integer():
        raise ValueError(f"a whole number, not {text!r}")
    if kind is float:
        # A threshold that is not a number is never met, and an infinite one always: no solver has a use for either.
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"a finite number, not {text!r}")
        return number
    if kind is not bool or isinstance(text, bool):
        return kind(text)
    words = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
    if str(text).lower() not in words:
        raise ValueError(f"true or false, not {text!r}")
    return words[str(text).lower()]


def _all(config: FitConfig) -> str:
    """The hint that lists losses and biases of all solvers for this kernel and multi-class scheme."""
    kinds: dict[str, list[str]] = {}
    for name, solver in SOLVERS.items():
        if _takes_rows(solver, config):
            kinds.setdefault(f"{'/'.join(solver.losses)} with bias {'/'.join(solver.biases)}", []).append(name)
    return "; ".join(f"{', '.join(names)}: {kind}" for kind, names in kinds.items())
