"""Errors as Python users meet them: their text names arguments, and their classes are also those of the language.

Inside the package errors have one base, BigSVMError, so that `except OSError` around a file never takes a refusal of
ours for a failing disk.  On the way out a missing input becomes a FileNotFoundError, too, and a refused plan a
MemoryError.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from bigsvm.errors import (
    BigSVMError,
    DataError,
    MissingInput,
    OutputError,
    PlanRefused,
    ReadFailed,
    TaskFailed,
    UsageError,
)
from bigsvm.events import Event, Warned

P = ParamSpec("P")
T = TypeVar("T")

_BUILTIN: dict[type[BigSVMError], type[Exception]] = {
    UsageError: ValueError,
    DataError: ValueError,
    MissingInput: FileNotFoundError,
    OutputError: OSError,
    ReadFailed: OSError,
    TaskFailed: RuntimeError,
    PlanRefused: MemoryError,
}
"""Class of ours -> what a Python user would catch."""
_WORDS = ("what", "where", "hint", "hint_in_python")
_NUMBER = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES, FileExistsError: errno.EEXIST}


class InPython:
    """Marks errors that have left the package."""


def for_python(error: BigSVMError, estimators: bool = False) -> BigSVMError:
    """The same error for a Python user: of its class and of the builtin one, with the options as Python has them.

    estimators : name the parameters of the estimators
    """
    if isinstance(error, InPython):
        return error
    from bigsvm.files.paths import rename
    from bigsvm.python_api.spelling import in_python, place_in_python  # loads the table of all options

    rename(error)
    kind: Any = type(error)
    kind = _class_of(kind, cast(Any, _builtin_of(error)))
    told: BigSVMError = kind(in_python(error.what, estimators), place_in_python(error.where))
    told.__dict__.update({name: value for name, value in vars(error).items() if name not in _WORDS})
    told.hint = in_python(error.hint_in_python or error.hint, estimators)
    told.hint = told.advice()
    _finish(told)
    return told.with_traceback(error.__traceback__)


def told_in_python(function: Callable[P, T]) -> Callable[P, T]:
    """A public function whose errors are those of `for_python`, and whose warnings name arguments."""

    @functools.wraps(function)
    def called(*args: P.args, **options: P.kwargs) -> T:
        emit = options.get("emit")
        if callable(emit):
            options["emit"] = lambda event: emit(_in_python(event))
        try:
            found = function(*args, **options)
        except BigSVMError as error:
            cause, told = error.__cause__, for_python(error)
        else:
            for one in found if isinstance(found, list) else [found, getattr(found, "refit", None)]:
                warned = one.get("warnings") if isinstance(one, dict) else getattr(one, "warnings", None)
                if isinstance(warned, list):
                    warned[:] = map(warning_in_python, warned)
            return found
        raise told from cause

    return called


def warning_in_python(message: str, estimators: bool = False) -> str:
    """A warning for a Python user."""
    from bigsvm.python_api.spelling import in_python

    return in_python(message, estimators)


def _in_python(event: Event) -> Event:
    return Warned(warning_in_python(event.message)) if isinstance(event, Warned) else event


def _builtin_of(error: BigSVMError) -> type[Exception] | None:
    """The builtin class; of files the very class of the failure, where it is known."""
    found = next((builtin for kind, builtin in _BUILTIN.items() if isinstance(error, kind)), None)
    cause = error.__cause__
    if found is FileNotFoundError and isinstance(cause, PermissionError):
        return PermissionError
    if found is OSError and isinstance(cause, OSError):
        return next(kind for kind in type(cause).__mro__ if kind.__module__ == "builtins")
    return found


@functools.cache
def _class_of(kind: Any, builtin: Any) -> Any:
    """The class with both as its bases, which has the name of the first."""
    bases = (InPython, kind) if builtin is None else (InPython, kind, builtin)
    about = {"__module__": kind.__module__, "__doc__": kind.__doc__, "_made_of": (kind, builtin)}
    return type(kind.__name__, bases, {**about, "__reduce__": _reduced})


def _finish(told: Any) -> None:
    """Set what the builtin class has of its own: `OSError` takes the arguments of ours for its own."""
    told.args = (told.what, told.where, told.hint)
    if issubclass(type(told), OSError):
        told.errno = next((number for kind, number in _NUMBER.items() if isinstance(told, kind)), None)
        told.strerror, told.filename = told.what, told.where or None


def _reduced(told: Any) -> tuple[Any, ...]:
    return _again, (*told._made_of, told.__dict__)


def _again(kind: Any, builtin: Any, values: dict[str, Any]) -> BigSVMError:
    """An error of `for_python` from its pickle."""
    told: BigSVMError = _class_of(kind, builtin)(values["what"])
    told.__dict__.update(values)
    _finish(told)
    return told
