"""Warnings about options that were given and have no effect in a fit; LIBSVM would ignore them silently.

For example `--gamma 0.5` without `--kernel`, typed from habit with LIBSVM, must not silently train a linear model.
"""

from __future__ import annotations

from collections.abc import Sequence

from bigsvm.config import NU_LOSSES, OPTIONS, FitConfig, Option
from bigsvm.problem.kernel import PARAMETERS


def unused_options(config: FitConfig, solver: str, shards: int) -> list[str]:
    """The warnings, one for each option.

    solver : the chosen solver;  shards : number of shards in the plan
    """
    said: dict[str, str] = {}
    for name, option in OPTIONS.items():
        if option.solvers and solver not in option.solvers:
            said[name] = f"the solver {solver}; it belongs to {_one_of(option.solvers)}"
    if config.loss not in NU_LOSSES:
        said["nu"] = f"the loss {config.loss}; it belongs to {_one_of(NU_LOSSES)}"
    if not config.loss.endswith("epsilon_insensitive"):
        why = "whose tube has the width that nu sets" if config.loss == "nu_svr" else "which has no tube"
        said["epsilon"] = f"the loss {config.loss}, {why}"
    for name in ("gamma", "degree", "coef0"):
        if name not in PARAMETERS[config.kernel]:
            having = [kernel for kernel, names in PARAMETERS.items() if name in names]
            said[name] = f"the kernel {config.kernel}; it belongs to --kernel {_one_of(having)}"
    if config.kernel in ("linear", "rbf"):
        said["assume_psd"] = f"the kernel {config.kernel}, which is positive semidefinite"
    if config.bias != "augmented":
        said["bias_scale"] = f"--bias {config.bias}; it belongs to --bias augmented"
    if config.calibrate is None:
        said["calibrate_share"] = "a fit without --calibrate"
    if shards == 1:
        said |= dict.fromkeys(("rounds_per_pass", "sum_seconds"), "rows in one part; see --shards")
    if config.scheduler_file is None and config.scheduler in (None, "serial", "threads"):
        said |= dict.fromkeys(("workers", "worker_scratch"), "a fit in one process; see --scheduler")
    return [f"{_flag(OPTIONS[name])} has no effect with {why}" for name, why in said.items() if _is_asked(config, name)]


def _one_of(names: Sequence[str]) -> str:
    """The names as English lists alternatives: `a`, `a or b`, `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _is_asked(config: FitConfig, name: str) -> bool:
    """Whether the option has another value than its default; a single shard counts as the default."""
    value = getattr(config, name)
    return bool(value != getattr(_UNASKED, name)) and not (name == "shards" and value == 1)


def _flag(option: Option) -> str:
    return next(flag for flag in option.flags.split() if flag.startswith("--"))


_UNASKED = FitConfig()
