"""What a fit was asked to do: one frozen record, validated once, shared by the command line and Python."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from bigsvm.config.fit_options import DEFAULTS, OPTIONS, FitOptions
from bigsvm.config.problem_names import JOINT_LOSS, JOINT_RULE, NU_LOSSES
from bigsvm.config.solver_table import KERNEL_SOLVERS, NO_BIAS_IN_PAPER
from bigsvm.errors import UsageError
from bigsvm.units import MIB, parse_bytes, parse_seconds

BASE_BYTES = 256 * MIB
"""The most that a process is taken to hold beside its budget: interpreter, libraries and compiled code."""


@dataclass(frozen=True)
class FitConfig(FitOptions):
    """The options of a fit, whose values are checked.

    Raises UsageError (on creation) for a value that no solver could use.
    """

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            if value is None and DEFAULTS[name] is None:
                continue
            if getattr(value, "ndim", None) == 0:  # a NumPy scalar, which JSON records could not hold
                value = value.item()
                object.__setattr__(self, name, value)
            if option.choices and value not in option.choices:
                raise UsageError(f"unknown {name} {value!r}", hint=f"one of {', '.join(option.choices)}")
            if option.flags and (wanted := option.wanted(value)):
                raise UsageError(f"{name} must be {wanted}, not {value!r}")
            if option.positive and not (isinstance(value, int | float) and 0 < value < float("inf")):
                # In LIBLINEAR, -B -1 trains without a bias.
                hint = "to train without a bias, use --bias none" if name == "bias_scale" else ""
                raise UsageError(f"{name} must be a positive number, not {value!r}", hint=hint)
            if option.least is not None and value < option.least:
                raise UsageError(f"{name} must be at least {option.least}, not {value!r}")
            if option.kind in ("float", "gamma") and not isinstance(value, str):
                # A whole number of Python is another type to compiled loops, and another text in a model's document.
                object.__setattr__(self, name, _as_float(name, value))
        number = isinstance(self.gamma, int | float) and 0 < self.gamma < float("inf")
        if self.gamma not in ("auto", "scale") and not number:
            raise UsageError(f"gamma must be auto, scale or a positive number, not {self.gamma!r}")
        if not (isinstance(self.epsilon, int | float) and 0 <= self.epsilon < float("inf")):
            raise UsageError(f"epsilon must be a number and not negative, not {self.epsilon!r}")
        for value in self.C_path or ():
            if not 0 < value < float("inf"):
                raise UsageError(f"every C must be a positive number, not {value!r}")
        if self.C_path is not None:
            object.__setattr__(self, "C_path", [_as_float("C", value) for value in self.C_path])
        if self.multi_class is not None and (self.regression or self.loss == "one_class"):
            fits = "targets" if self.regression else "rows of one class"
            raise UsageError(f"multi_class is for classes, and the loss {self.loss} fits {fits}", hint="leave it out")
        if self.lam is not None and self.C_path is None and self.C != 1.0:
            raise UsageError("C and lam exclude each other", hint="C = 1 / (lam n_samples)")
        self._check_joint()
        self._check_nu()
        if self.calibrate == "platt":
            object.__setattr__(self, "calibrate", "sigmoid")
        if self.calibrate is not None and (self.regression or self.loss == "one_class"):
            what = "a regression" if self.regression else "one_class"
            raise UsageError(f"probabilities are of classes, and {what} has none", hint="leave calibrate out")
        if not self.calibrate_share < 1:
            raise UsageError(f"calibrate_share must be below 1, not {self.calibrate_share!r}")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed must be between 0 and 2^63 - 1, not {self.seed}")

    @property
    def regression(self) -> bool:
        """Whether the loss fits targets instead of classes."""
        return self.loss.endswith("epsilon_insensitive") or self.loss == "nu_svr"

    def _check_joint(self) -> None:
        """Raise UsageError for options that exclude Crammer and Singer's loss."""
        if (self.multi_class == JOINT_RULE) != (self.loss == JOINT_LOSS):
            raise UsageError(
                f"multi_class {self.multi_class!r} and loss {self.loss!r} exclude each other: "
                f"Crammer and Singer's loss is {JOINT_LOSS!r}",
                hint=f"say multi_class {JOINT_RULE!r} and leave loss out",
            )
        if self.loss != JOINT_LOSS:
            return
        for wrong, what, hint in (
            (
                self.of_kernel,
                "is for linear models, without a kernel or kernel solvers",
                "leave --kernel and --solver out, or use --multi-class ovo",
            ),
            (self.bias == "free", "has no free bias", "use --bias augmented or none"),
            (self.shards is not None and self.shards > 1, "is not trained on several shards", "use --shards 1"),
            (self.C_path is not None, "is not trained for several C at one time", "fit each C"),
        ):
            if wrong:
                raise UsageError(f"Crammer and Singer's loss {what}", hint=hint)

    def _check_nu(self) -> None:
        """Raise UsageError for a bad nu, and for options that exclude the losses with nu."""
        if self.nu > 1.0:
            raise UsageError(f"nu must be at most 1, not {self.nu!r}", hint="it is a share of the rows, such as 0.1")
        if self.loss not in NU_LOSSES:
            return
        if self.bias != "free":
            raise UsageError(f"the loss {self.loss} has a free bias, not {self.bias!r}", hint="leave bias out")
        if self.C_path is not None or (self.loss != "nu_svr" and (self.C != 1.0 or self.lam is not None)):
            raise UsageError(f"the loss {self.loss} has no cost C", hint="set nu instead; in a search use --Cs 1")
        if self.warm_start is not None:
            raise UsageError(f"the loss {self.loss} cannot start from an earlier model", hint="leave warm_start out")
        indefinite = self.kernel == "sigmoid" or (self.kernel == "poly" and self.coef0 < 0)
        if self.loss != "nu_svr" and indefinite and not self.assume_psd:
            what = f"the loss {self.loss} needs a positive semidefinite kernel, which {self.kernel} is not in general"
            raise UsageError(what, hint="vouch for it with assume_psd, or choose rbf")
        if self.working_set == 2 or self.wss in ("keerthi2", "wr", "wr+3"):
            refused = "working_set=2" if self.working_set == 2 else f"wss={self.wss}"
            raise UsageError(
                f"the loss {self.loss} does not support {refused}",
                hint="leave working_set and wss out, or use wss 1 or 2",
            )

    @classmethod
    def of(cls, **options: Any) -> FitConfig:
        """A config from keyword options as a user writes them.

        Sets defaults that depend on other options.  Raises UsageError for an unknown name; suggests the nearest one.
        """
        known = {name for name, option in OPTIONS.items() if option.flags}
        # The record of a run has every field, also those without a flag, as None.
        recorded = OPTIONS.keys() - known
        options = {name: value for name, value in options.items() if name not in recorded or value is not None}
        unknown = sorted(set(options) - known)
        if unknown:
            raise UsageError(f"unknown option {unknown[0]!r}", hint=_nearest(unknown[0], known))
        if isinstance(options.get("warm_start"), str | os.PathLike):  # the run may be resumed from another folder
            options["warm_start"] = os.path.abspath(options["warm_start"])
        if isinstance(options.get("max_time"), str):
            options["max_time"] = parse_seconds(options["max_time"])
        if isinstance(options.get("wss"), int):
            options["wss"] = str(options["wss"])
        if options.get("stop") == "paper" and options.get("solver") in NO_BIAS_IN_PAPER:
            options.setdefault("bias", "none")
        if options.get("loss") in NU_LOSSES:
            options.setdefault("bias", "free")
            options["solver"] = "smo" if options.get("solver", "auto") == "auto" else options["solver"]
        if options.get("multi_class") == JOINT_RULE and options.get("loss", "hinge") == "hinge":
            options["loss"] = JOINT_LOSS
        elif options.get("loss") == JOINT_LOSS:
            options.setdefault("multi_class", JOINT_RULE)
        if options.get("kernel", "linear") != "linear" or options.get("solver") in KERNEL_SOLVERS:
            options.setdefault("bias", "free")
            options.setdefault("loss", "hinge")
        return cls(**options)

    @property
    def of_kernel(self) -> bool:
        """Whether a kernel solver is needed."""
        return self.kernel != "linear" or self.solver in KERNEL_SOLVERS

    def costs(self, n_samples: int) -> list[float]:
        """The values of C: one, computed from lambda if that was given; several for `C_path`."""
        if self.C_path is not None:
            return self.C_path
        return [1.0 / (self.lam * n_samples) if self.lam is not None else self.C]

    def memory_bytes(self, limit_in_force: int) -> int:
        """The memory budget in bytes: as asked for, else half of (limit_in_force - BASE_BYTES)."""
        if self.memory is None:
            return max((limit_in_force - BASE_BYTES) // 2, 16 * MIB)
        return parse_bytes(self.memory, total=limit_in_force)

    def cache_bytes(self, budget: int) -> int | None:
        """Bytes of memory for kernel rows; None: what the budget leaves."""
        return None if self.cache_memory is None else parse_bytes(self.cache_memory, total=budget)

    def scratch_limit_bytes(self) -> int | None:
        """Bytes that working copies and per-row state may take on disk; None: no limit."""
        return None if self.scratch_limit is None else parse_bytes(self.scratch_limit)


CALLED_ELSEWHERE = {
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
"""Name of an option in another program -> our field."""


def _as_float(name: str, value: Any) -> float:
    """`value` of the option `name`; raises UsageError for a whole number beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{name} is a whole number beyond 1e308, the largest that is computed with") from None


def _nearest(name: str, known: set[str]) -> str:
    """The hint for an unknown option: the one that was probably meant, else all of them."""
    by_lower = {option.lower(): option for option in known}
    low = name.lower().strip("_").replace("-", "_")
    meant = CALLED_ELSEWHERE.get(low) or by_lower.get(low)
    if meant is None:
        import difflib  # here, to keep imports of programs that only predict light

        near = difflib.get_close_matches(low, by_lower, n=1, cutoff=0.6)
        meant = by_lower[near[0]] if near else None
    return f"did you mean {meant}?" if meant else f"known: {', '.join(sorted(known))}"
