"""What a fit was asked to do: one frozen record, validated once, shared by the command line and Python."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from bigsvm.errors import UsageError
from bigsvm.units import parse_bytes, parse_seconds

Bias = Literal["augmented", "free", "none"]
Stop = Literal["gap", "paper"]
MultiClass = Literal["ovr", "ovo"]
WSS = Literal["1", "2", "3", "keerthi2", "wr", "wr+3"]
LOSSES = ("hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive")
KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")
KERNEL_SOLVERS = ("smo", "rosen", "rosen-block", "simplified-smo", "simplified-smo-km", "platt-smo")
"""Solvers of the dual that see the rows through a kernel only: hinge and a free bias are their defaults."""
_NOT_TYPED = ("C_path",)
"""Fields that are not options of a user's."""
_NO_BIAS_IN_PAPER = ("hyperpass", "pegasos")
"""Solvers whose papers have no bias: under --stop paper that is the default."""


def _option(default: Any, changes: str) -> Any:
    if callable(default):
        return field(default_factory=default, metadata={"changes": changes})
    return field(default=default, metadata={"changes": changes})


def _result(default: Any) -> Any:
    """A field that changes what a model says: coefficients, proof or problem."""
    return _option(default, "result")


def _files(default: Any) -> Any:
    """A field that changes which files a model has, and not what it says."""
    return _option(default, "files")


def _place(default: Any) -> Any:
    """A field that says where, how fast or how long a fit runs, and leaves the bytes of its model alone."""
    return _option(default, "nothing")


@dataclass(frozen=True)
class FitConfig:
    """Options of a fit; names and defaults are those of the command line.

    Raises UsageError (on creation) for a value that no solver could use.
    """

    # the problem
    solver: str = _result("auto")
    loss: str = _result("squared_hinge")
    C: float = _result(1.0)
    lam: float | None = _result(None)
    """The lambda of the mean form; C = 1 / (lambda n_samples).  Excludes C."""
    bias: Bias = _result("augmented")
    bias_scale: float = _result(1.0)
    class_weight: str | dict[str, float] | None = _result(None)
    """'balanced', or weights by label as text: {'1': 10.0}; labels not named weigh 1."""
    multi_class: MultiClass | None = _result(None)
    """One against the rest, or every pair of classes; None: pairs for kernel solvers, as LIBSVM, else the rest."""
    epsilon: float = _result(0.1)
    """Half the width of the tube of the epsilon-insensitive losses, in units of the target."""
    kernel: str = _result("linear")
    gamma: str | float = _result("auto")
    """'auto' is 1 / n_features."""
    degree: int = _result(3)
    coef0: float = _result(0.0)
    assume_psd: bool = _result(False)
    """The user vouches that a kernel which is not so by construction is positive semidefinite on these rows."""
    # kernel solvers
    wss: WSS = _result("2")
    """Rule by which a working set is chosen."""
    working_set: int | None = _result(None)
    """Rows of a working set; 2 is the textbook's; None: what the solver finds best."""
    shrinking: bool = _result(True)
    cache_memory: str | int | None = _place(None)
    """Bytes of kernel rows kept in memory; None: what the budget leaves."""
    # when to stop
    tol: float = _result(1e-3)
    stop: Stop = _result("gap")
    max_passes: float | None = _result(None)
    max_time: float | None = _place(None)
    """Seconds.  Where a run ends by it is the clock's choice, so a run may go on with another one."""
    seed: int = _result(0)
    blocks_per_round: int = _result(1)
    solver_options: dict[str, Any] = _result(dict)
    # where it runs
    memory: str | int | None = _result(None)
    """Bytes, '2GiB' or '25%' of the memory limit in force; None: half of (limit - 256 MiB)."""
    scratch: str | None = _place(None)
    scratch_limit: str | int | None = _place(None)
    stage: Literal["auto", "none"] = _result("auto")
    """'none' streams the store in its own order, in which rows are neither shuffled nor renumbered."""
    threads: int | None = _place(None)
    scheduler: str | None = _place(None)
    """None: threads here; 'serial', 'threads', 'processes', or a dask scheduler's address."""
    scheduler_file: str | None = _place(None)
    workers: int | None = _place(None)
    # what it leaves behind
    no_dual: bool = _files(False)
    # set by `fit_path` alone
    C_path: list[float] | None = _result(None)
    """One set of models for each C, trained together; C is then their largest, which `auto` goes by."""

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise UsageError(f"unknown loss {self.loss!r}", hint=f"one of {', '.join(LOSSES)}")
        enumerated = {
            "bias": Bias,
            "stop": Stop,
            "stage": Literal["auto", "none"],
            "multi_class": MultiClass,
            "wss": WSS,
        }
        for name, choices in enumerated.items():
            value = getattr(self, name)
            if value not in get_args(choices) and not (name == "multi_class" and value is None):
                raise UsageError(f"unknown {name} {value!r}", hint=f"one of {', '.join(get_args(choices))}")
        for name in ("C", "lam", "bias_scale", "tol", "max_passes", "max_time"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < float("inf")):
                raise UsageError(f"{name} must be a positive number, not {value!r}")
        if self.gamma != "auto" and not (isinstance(self.gamma, int | float) and 0 < self.gamma < float("inf")):
            raise UsageError(f"gamma must be auto or a positive number, not {self.gamma!r}")
        if not (isinstance(self.epsilon, int | float) and 0 <= self.epsilon < float("inf")):
            raise UsageError(f"epsilon must be a number and not negative, not {self.epsilon!r}")
        if self.working_set is not None and self.working_set < 2:
            raise UsageError(f"working_set must be at least 2, not {self.working_set!r}")
        for value in self.C_path or ():
            if not 0 < value < float("inf"):
                raise UsageError(f"every C must be a positive number, not {value!r}")
        for name in ("threads", "workers", "blocks_per_round"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value!r}")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed must be between 0 and 2^63 - 1, got {self.seed}")

    @classmethod
    def of(cls, **options: Any) -> FitConfig:
        """A config from keyword options as a user writes them; unknown names are refused by name."""
        known = {f.name for f in dataclasses.fields(cls)} - set(_NOT_TYPED)
        # The record of a run has every field.
        options = {name: value for name, value in options.items() if name not in _NOT_TYPED or value is not None}
        unknown = sorted(set(options) - known)
        if unknown:
            raise UsageError(f"unknown option {unknown[0]!r}", hint=_nearest(unknown[0], known))
        if isinstance(options.get("max_time"), str):
            options["max_time"] = parse_seconds(options["max_time"])
        if options.get("stop") == "paper" and options.get("solver", "").startswith(_NO_BIAS_IN_PAPER):
            options.setdefault("bias", "none")
        if options.get("kernel", "linear") != "linear" or options.get("solver") in KERNEL_SOLVERS:
            options.setdefault("bias", "free")
            options.setdefault("loss", "hinge")
        return cls(**options)

    @property
    def of_kernel(self) -> bool:
        """Whether rows are seen through a kernel only."""
        return self.kernel != "linear" or self.solver in KERNEL_SOLVERS

    def costs(self, n_samples: int) -> list[float]:
        """C, also where lambda was given; of a path each C."""
        if self.C_path is not None:
            return self.C_path
        return [1.0 / (self.lam * n_samples) if self.lam is not None else self.C]

    def memory_bytes(self, limit_in_force: int) -> int:
        """The budget in bytes: as asked, else half of what the limit leaves above the base of 256 MiB."""
        if self.memory is None:
            return max((limit_in_force - (256 << 20)) // 2, 16 << 20)
        return parse_bytes(self.memory, total=limit_in_force)

    def cache_bytes(self, budget: int) -> int | None:
        """Bytes that kernel rows may take in memory; None: what is left."""
        return None if self.cache_memory is None else parse_bytes(self.cache_memory, total=budget)

    def scratch_limit_bytes(self) -> int | None:
        """Bytes that staged copies and per-row state may take on disk; None: what the disk has."""
        return None if self.scratch_limit is None else parse_bytes(self.scratch_limit)


_CALLED_ELSEWHERE = {
    "lambda": "lam",
    "alpha": "lam",
    "max_iter": "max_passes",
    "n_iter": "max_passes",
    "random_state": "seed",
    "n_jobs": "threads",
    "fit_intercept": "bias",
    "intercept_scaling": "bias_scale",
    "decision_function_shape": "multi_class",
    "cache_size": "cache_memory",
    "eps": "tol",
}
"""What other programs call our options."""


def _nearest(name: str, known: set[str]) -> str:
    """The option that was meant, where one is near; else all."""
    by_lower = {option.lower(): option for option in known}
    low = name.lower().strip("_").replace("-", "_")
    meant = _CALLED_ELSEWHERE.get(low) or by_lower.get(low)
    if meant is None:
        near = difflib.get_close_matches(low, by_lower, n=1, cutoff=0.6)
        meant = by_lower[near[0]] if near else None
    return f"did you mean {meant}?" if meant else f"known: {', '.join(sorted(known))}"


def _that_change(*what: str) -> tuple[str, ...]:
    return tuple(option.name for option in dataclasses.fields(FitConfig) if option.metadata["changes"] in what)


RESULT_OPTIONS = _that_change("result")
"""Options that change what a model says; the others say where and how fast, or which files it has."""
MODEL_OPTIONS = _that_change("result", "files")
"""Options that change the bytes of a model's directory."""
