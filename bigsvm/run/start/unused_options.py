"""Warnings about options that were given and have no effect in a fit; LIBSVM would ignore them silently.

For example `--gamma 0.5` without `--kernel`, typed from habit with LIBSVM, must not silently train a linear model.
"""

from __future__ import annotations

from bigsvm.config import NU_LOSSES, OPTIONS, FitConfig
from bigsvm.option import Option
from bigsvm.problem.kernel import PARAMETERS


def unused_options(config: FitConfig, solver: str, shards: int) -> list[str]:
    """The warnings, one for each option.

    solver : the chosen solver;  shards : number of shards in the plan
    """
    said: dict[str, str] = {}
    for name, option in OPTIONS.items():
        if option.solvers and solver not in option.solvers:
            said[name] = f"the solver {solver}: it is of {', '.join(option.solvers)}"
    if config.loss not in NU_LOSSES:
        said["nu"] = f"the loss {config.loss}: it is of {', '.join(NU_LOSSES)}"
    if not config.loss.endswith("epsilon_insensitive"):
        instead = "nu sets the width of its tube" if config.loss == "nu_svr" else "it has no tube"
        said["epsilon"] = f"the loss {config.loss}: {instead}"
    for name in ("gamma", "degree", "coef0"):
        if name not in PARAMETERS[config.kernel]:
            having = [kernel for kernel, names in PARAMETERS.items() if name in names]
            said[name] = f"the kernel {config.kernel}: it is of --kernel {' or '.join(having)}"
    if config.kernel in ("linear", "rbf"):
        said["assume_psd"] = f"the kernel {config.kernel}, which is positive semidefinite"
    if config.bias != "augmented":
        said["bias_scale"] = f"--bias {config.bias}: it is of --bias augmented"
    if config.calibrate is None:
        said["calibrate_share"] = "a fit without --calibrate"
    if shards == 1:
        said |= dict.fromkeys(("rounds_per_pass", "sum_seconds"), "rows that are in one part: see --shards")
    if config.scheduler_file is None and config.scheduler in (None, "serial", "threads"):
        said |= dict.fromkeys(("workers", "worker_scratch"), "a fit in one process: see --scheduler")
    return [f"{_flag(OPTIONS[name])} says nothing to {why}" for name, why in said.items() if _is_asked(config, name)]


def _is_asked(config: FitConfig, name: str) -> bool:
    """Whether the option has another value than its default; a single shard counts as the default."""
    value = getattr(config, name)
    return bool(value != getattr(_UNASKED, name)) and not (name == "shards" and value == 1)


def _flag(option: Option) -> str:
    return next(flag for flag in option.flags.split() if flag.startswith("--"))


_UNASKED = FitConfig()
