"""Flags and values of other programs, with their names in bigsvm (docs/coming-from.md)."""

from __future__ import annotations

from pathlib import PurePath

from bigsvm.config import CALLED_ELSEWHERE, OPTIONS

_COMMANDS = ("fit", "plan", "tune")
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
"""Flag of LIBLINEAR's `train` or LIBSVM's `svm-train` -> hint."""
_OF_TUNE = {
    "-c": "--Cs C,C,...",
    "-C": "--Cs LOW:HIGH:N, the costs that are tried",
    "-g": "--gammas G,G,...",
    "-w": "--class-weights LABEL=WEIGHT,...: -w1 5 is --class-weights 1=5",
    "--lambda": "--Cs C,C,...: C = 1 / (lambda n_samples)",
    "--l2": "--Cs C,C,...: C = 1 / (lambda n_samples)",
    "--alpha": "--Cs C,C,...: C = 1 / (alpha n_samples)",
}
"""The same for `bigsvm tune`, where it differs: a search takes lists of values."""
_OTHER_FLAGS = {
    "--penalty": "the penalty is L2, and L1 is out of scope: see docs/scope.md",
    "--l2": "--lambda, Vowpal Wabbit's --l2",
    "--l1": "an L1 penalty is out of scope: see docs/scope.md",
    "--passes": "--max-passes, which limits a fit that ends by --tol",
    "--loss_function": "--loss",
    "--noconstant": "--bias none",
    "--oaa": "--multi-class ovr: the classes are those of the labels",
    "--task": "--loss epsilon_insensitive or squared_epsilon_insensitive, which fit targets",
}
"""Flag of scikit-learn or Vowpal Wabbit -> hint."""
_SOLVERS = {
    "0": "logistic regression, which bigsvm does not have",
    "1": "--loss squared_hinge --solver dcd",
    "2": "--loss squared_hinge --solver newton-cg",
    "3": "--loss hinge --solver dcd",
    "4": "--multi-class crammer-singer",
    "5": "an L1 penalty, which bigsvm does not have",
    "6": "an L1 penalty, which bigsvm does not have",
    "7": "logistic regression, which bigsvm does not have",
    "11": "--loss squared_epsilon_insensitive --solver newton-cg",
    "12": "--loss squared_epsilon_insensitive --solver dcd",
    "13": "--loss epsilon_insensitive --solver dcd",
}
"""LIBLINEAR's -s number -> hint."""
_TYPES = {
    "0": "C-SVC, here --kernel rbf",
    "1": "nu-SVC, here --kernel rbf --loss nu_svc",
    "2": "one-class, here --kernel rbf --loss one_class",
    "3": "epsilon-SVR, here --kernel rbf --loss epsilon_insensitive",
    "4": "nu-SVR, here --kernel rbf --loss nu_svr",
}
"""LIBSVM's -s number -> hint."""
_VALUES = dict.fromkeys(("log", "log_loss", "logistic"), "logistic loss is out of scope, see docs/scope.md")
"""Value of an option of another program -> why bigsvm refuses it."""


def meant_by(flag: str, command: str | None) -> str:
    """The hint for a flag that `command` does not have; '' if it is not known from other programs."""
    if command not in _COMMANDS:
        return ""
    known = {**_FLAGS, **_OTHER_FLAGS, **(_OF_TUNE if command == "tune" else {})}
    if flag in known:
        return f"did you mean {known[flag]}" if known[flag].startswith("--") else known[flag]
    field = CALLED_ELSEWHERE.get(flag.lstrip("-").replace("-", "_")) if flag.startswith("--") else None
    return f"did you mean {OPTIONS[field].flags.split()[-1]}?" if field else ""


def solver_meant(number: str) -> str:
    """The hint for a number given to -s, as in LIBLINEAR and LIBSVM; '' for anything else."""
    meant = {"LIBLINEAR": _SOLVERS.get(number), "LIBSVM": _TYPES.get(number)}
    return "; ".join(f"{program}'s -s {number} is {here}" for program, here in meant.items() if here)


def value_meant(word: str) -> str:
    """The hint for a value that other programs have; '' for other words."""
    return _VALUES.get(word, "")


def extra_meant(command: str | None, verbose: object, message: str) -> str:
    """The hint for unexpected arguments: files of a table, or a number after -v as in LIBSVM and LIBLINEAR; else ''.

    verbose : how many times -v was given
    message : click's, which ends with the arguments in parentheses
    """
    from bigsvm.store.formats.tables.table_names import table_is_named  # the program's help has no use for it

    extra = message.rpartition("(")[2].rstrip(").").split()
    if extra and all(map(table_is_named, extra)):
        suffixes = PurePath(extra[0]).suffixes
        of_packed = suffixes[-1] in (".gz", ".bz2", ".xz", ".zst")
        pattern = f"FOLDER/*{''.join(suffixes[-2 if of_packed else -1 :])}"
        return f"quote a pattern, so that the shell does not expand it: '{pattern}'; or name the folder"
    if command not in _COMMANDS or not verbose:
        return ""
    return "-v takes no number; LIBSVM's -v N, cross-validation in N folds, is bigsvm tune STORE --folds N"
