"""What users of other programs type from habit, and what it is called here (docs/coming-from.md)."""

from __future__ import annotations

from bigsvm.config import CALLED_ELSEWHERE, OPTIONS

_COMMANDS = ("fit", "plan")
_FLAGS = {
    "-C": "the cost is -c; a search over costs, as LIBLINEAR's -C, is bigsvm tune STORE",
    "-t": "--kernel linear|poly|rbf|sigmoid|precomputed, LIBSVM's -t 0|1|2|3|4",
    "-g": "--gamma",
    "-d": "--degree",
    "-r": "--coef0",
    "-p": "--epsilon",
    "-m": "--cache-memory, LIBSVM's -m in MB: -m 100 is --cache-memory 100MB",
    "-w": "--class-weight LABEL=WEIGHT,...: -w1 5 is --class-weight 1=5",
    "-q": "--quiet",
    "-n": "--nu, with --loss nu_svc, nu_svr or one_class",
    "-b": "--calibrate sigmoid, which holds rows out for it",
    "-R": "--bias free",
}
"""Of `train` and `svm-train`."""
_SOLVERS = {
    "0": "logistic regression, which is not to be had here",
    "1": "--loss squared_hinge --solver dcd",
    "2": "--loss squared_hinge --solver newton-cg",
    "3": "--loss hinge --solver dcd",
    "4": "--multi-class crammer-singer",
    "5": "an L1 penalty, which is not to be had here",
    "6": "an L1 penalty, which is not to be had here",
    "7": "logistic regression, which is not to be had here",
    "11": "--loss squared_epsilon_insensitive --solver newton-cg",
    "12": "--loss squared_epsilon_insensitive --solver dcd",
    "13": "--loss epsilon_insensitive --solver dcd",
}
"""LIBLINEAR's numbers for solvers."""


def meant_by(flag: str, command: str | None) -> str:
    """What a flag that a command does not have is called here; empty where nobody knows."""
    if command not in _COMMANDS:
        return ""
    if flag in _FLAGS:
        return f"did you mean {_FLAGS[flag]}" if _FLAGS[flag].startswith("--") else _FLAGS[flag]
    field = CALLED_ELSEWHERE.get(flag.lstrip("-").replace("-", "_")) if flag.startswith("--") else None
    return f"did you mean {OPTIONS[field].flags.split()[-1]}?" if field else ""


def solver_meant(number: str) -> str:
    """What a solver that goes by a number in LIBLINEAR is here; empty for other names."""
    return f"LIBLINEAR's -s {number} is {_SOLVERS[number]}" if number in _SOLVERS else ""
