"""Options as a Python user writes them, in messages that name them as they are typed in a shell.

All messages name options once, as flags: `use --memory 128MiB`.  The command line prints them as they are.  Functions
of Python say `use memory="128MiB"`, and estimators name their own parameters.  Lines for a shell stay as they are.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from bigsvm.config import CALLED_ELSEWHERE, OPTIONS, SOLVER_TABLE, TYPED

_READING = {
    "label": "text", "labels": "text", "weight": "text", "matrix": "text", "columns": "text", "rows": "text",
    "hash_bits": "int", "missing": "text", "scale": "text", "normalize": "text", "split": "float", "positive": "text",
    "label_map": "text", "empty_chunks": "text", "storage_option": "settings", "task": "text", "dtype": "text",
    "n_features": "int", "zero_based": "flag", "chunk_bytes": "size", "append": "flag", "overwrite": "flag",
    "format": "text", "cs": "text", "gammas": "text", "class_weights": "text", "folds": "int", "group": "text",
    "metric": "text", "refit": "flag",
}  # fmt: skip
"""Flags that are no fields of FitConfig but parameters of a Python function, and the kinds of their values."""
_CALLED = {"storage_option": "storage_options", "cs": "Cs"}
_SHELL = re.compile(r"\b(?:bigsvm [a-z]+|dask worker|aws s3|ulimit)\b[^,;()]*")
"""Lines for a shell, which say what to run there."""
_VALUE = (
    r"'[^']*'"  # quoted
    r"|[A-Z]\w?(?:,[A-Z]\w?)+(?:,\.\.\.)?|[A-Z]{2,}\b|[A-Z]\b"  # A,B,... or NAME
    r"|[a-z_]\w*=[\w.:+-]+"  # one of --set
    r"|\d[\w.%:+-]*(?<![.:])"  # a number or a size
    r"|[a-z][\w-]*"  # a word, where it is one of the values
)
_FLAG = re.compile(rf"(?P<before>\b(?:leave(?: out)?|without|fit) )?(?<![\w-])--(?P<name>[A-Za-z][\w-]*)"
                   rf"(?: (?P<value>{_VALUE}))?(?: or (?P<other>[a-z][\w-]*))?")  # fmt: skip
_SOLVER = re.compile(r"(?<![\w-])-s (?P<value>[a-z][a-z-]+)(?: or (?P<other>[a-z][a-z-]+))?")
_WORDS = {
    "scale": ("maxabs", "standard", "unit-norm", "none"),
    "missing": ("refuse", "drop"),
    "task": ("classification", "regression"),
    "dtype": ("float32", "float64"),
    "format": ("onnx", "npz", "liblinear", "libsvm"),
    "empty_chunks": ("refuse", "zeros"),
    "scheduler": ("threads", "processes", "dask", "serial"),
    "columns": ("numbers",),
}
"""Of options whose values have no list in FitConfig: the words that stand for a value."""
OF_ESTIMATORS = {
    **{CALLED_ELSEWHERE[name]: name for name in ("max_iter", "random_state", "cache_size")},
    **{name: name for name in ("C", "loss", "nu", "epsilon", "kernel", "degree", "gamma", "coef0", "shrinking", "tol")},
    **{name: name for name in ("class_weight", "solver", "multi_class", "memory", "threads", "warm_start")},
}  # fmt: skip
"""Option of `bigsvm.fit` -> the parameter of the estimators that stands for it."""


class _Option(NamedTuple):
    name: str
    kind: str
    words: tuple[str, ...]
    negated: bool = False


@functools.cache
def _options() -> dict[str, _Option]:
    """Name of a flag, with underscores -> what it is in Python."""
    found = {name: _Option(_CALLED.get(name, name), kind, _WORDS.get(name, ())) for name, kind in _READING.items()}
    for typed, field in TYPED.items():
        option = OPTIONS[field]
        found[typed] = _Option(field, option.kind, option.choices or _WORDS.get(field, ()), option.negated)
    found["solver"] = found["solver"]._replace(words=("auto", *SOLVER_TABLE))
    return found


def in_python(text: str, estimators: bool = False) -> str:
    """A message with its options as arguments of Python functions.

    estimators : name the parameters of the estimators; where they have none, those of `bigsvm.fit`
    """
    if "-" not in text:
        return text
    parts, end = [], 0
    for shell in _SHELL.finditer(text):
        parts += [_spelled(text[end : shell.start()], estimators), shell[0]]
        end = shell.end()
    return "".join([*parts, _spelled(text[end:], estimators)])


def _spelled(text: str, estimators: bool) -> str:
    text = _SOLVER.sub(
        lambda found: f"--solver {found['value']}" + (f" or {found['other']}" if found["other"] else ""), text
    )
    return _FLAG.sub(lambda found: _argument(found, estimators), text)


def _argument(found: re.Match[str], estimators: bool) -> str:
    """What stands in the place of a flag, of its value, and of an alternative to that."""
    name = found["name"].replace("-", "_")
    option = _options().get(name if name in _options() else name.lower())
    if option is None:  # of a command that has no Python function
        return found[0]
    before, value, other = found["before"] or "", found["value"], found["other"]
    called = OF_ESTIMATORS.get(option.name, option.name) if estimators else option.name
    if estimators and before == "fit " and (called, value) == ("scale", "maxabs"):
        return 'MaxAbsScaler or open_store(..., scale="maxabs")'  # of arrays, and of stores
    if before == "fit ":  # the command; the argument is of the function that was called, or `bigsvm.fit(...)` says it
        before = ""
    if option.kind == "flag":
        rest = "".join((f" {value}" if value else "", f" or {other}" if other else ""))
        said = called if before else f"{called}={not option.negated}"
        return f"{before}{_of_fit(said, option, estimators)}{rest}"
    words = option.words
    if value is not None and value[0].islower() and "=" not in value and value not in words:
        value, other, rest = None, None, found[0][found.start("value") - found.start() - 1 :]
    elif other is not None and other not in words:
        other, rest = None, f" or {other}"
    else:
        rest = ""
    if value is None:
        return f"{before}{_of_fit(called, option, estimators)}{rest}"
    said = _of_fit(f"{called}={_literal(value, option.kind)}", option, estimators)
    return f"{before}{said}{f' or {_literal(other, option.kind)}' if other else ''}{rest}"


def _of_fit(said: str, option: _Option, estimators: bool) -> str:
    return f"bigsvm.fit({said})" if estimators and option.name not in OF_ESTIMATORS and "=" in said else said


def _literal(value: str, kind: str) -> str:
    """A typed value as Python has it; names in capitals stand for what the reader knows."""
    if value[0] == "'" or (value.isupper() and "," not in value and not value[0].isdigit()):
        return value
    if kind in ("int", "float", "gamma") and value[0].isdigit():
        return value
    if kind == "settings" and "=" in value:
        key, _, what = value.partition("=")
        number = what[0].isdigit()
        return f'{{"{key}": {what if number or what.isupper() else _quoted(what)}}}'
    return _quoted(value)


def _quoted(value: str) -> str:
    return f'"{value}"'


def place_in_python(where: str) -> str:
    """Where an error lies: arrays in memory need no name, since the caller has given them."""
    for begin in ("memory, ", "memory/"):
        if where.startswith(begin):
            return where.removeprefix(begin)
    return "" if where == "memory" else where
