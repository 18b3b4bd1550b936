"""What a fit was asked to do, and a table of solvers that loads none of them.

All other folders import from here, not from the files.
"""

from bigsvm.config.fit_config import BASE_BYTES, CALLED_ELSEWHERE, FitConfig
from bigsvm.config.fit_options import DEFAULTS, MODEL_OPTIONS, OPTIONS, RESULT_OPTIONS, TYPED
from bigsvm.config.option import Option
from bigsvm.config.problem_names import JOINT_LOSS, JOINT_RULE, KERNELS, LOSSES, NU_LOSSES
from bigsvm.config.solver_table import KERNEL_SOLVERS, SOLVER_TABLE

__all__ = [
    "BASE_BYTES",
    "CALLED_ELSEWHERE",
    "DEFAULTS",
    "JOINT_LOSS",
    "JOINT_RULE",
    "KERNELS",
    "KERNEL_SOLVERS",
    "LOSSES",
    "MODEL_OPTIONS",
    "NU_LOSSES",
    "OPTIONS",
    "RESULT_OPTIONS",
    "SOLVER_TABLE",
    "TYPED",
    "FitConfig",
    "Option",
]
