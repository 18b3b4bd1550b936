"""What can go wrong, each with the exit code that outside scripts rely on.

Every error says what happened, where, and what to try next.  The command line prints it as one line.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import ClassVar, ParamSpec, TypeVar

_NUMBERED = re.compile(r"(?<![\w/.-])(row|column)s? [0-9]+(?![\w/]|\.\w| \(char )")  # not those of `json`
_QUOTED = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*")(?!\w)""")  # names, labels and values, which may read as anything
_COUNTED = "are counted from 0"
P = ParamSpec("P")
T = TypeVar("T")


class BigSVMError(Exception):
    """A failure that is not a bug: of the request, the data, the machine or the network.

    Parameters
    ----------
    what : str     the failure, with the offending value
    where : str    file, line, row, chunk or key that it concerns; empty when there is none
    hint : str     the next thing to try, in a shell; empty when there is none
    hint_in_python : str    the same in Python, where that is another thing and not only an option by another name

    Class attributes
    ----------------
    code : int     the exit code
    anchor : str   the section of docs/errors.md about such failures
    """

    code: ClassVar[int] = 1
    anchor: ClassVar[str] = "bug"

    def __init__(self, what: str, where: str = "", hint: str = "", *, hint_in_python: str = "") -> None:
        super().__init__(what, where, hint)
        self.what, self.where, self.hint, self.hint_in_python = what, where, hint, hint_in_python

    def __str__(self) -> str:
        text, advice = f"{self.where}: {self.what}" if self.where else self.what, self.advice()
        return f"{text} ({advice})" if advice else text

    def advice(self) -> str:
        """The hint; if the message has numbers of rows or columns, with a word on where these begin.

        The place is looked at only where all of it is a number of a row: the name of a file may contain "row 5".
        """
        place = f"{self.where} " if _NUMBERED.fullmatch(self.where) else ""
        kinds = dict.fromkeys(_NUMBERED.findall(_QUOTED.sub("", place + self.what)))
        if not kinds or _COUNTED in self.hint:
            return self.hint
        return "; ".join(filter(None, (self.hint, f"{' and '.join(f'{kind}s' for kind in kinds)} {_COUNTED}")))


class UsageError(BigSVMError):
    """The request makes no sense as typed."""

    code = 2
    anchor = "usage"


class Unsupported(UsageError):
    """A combination of solver, loss, bias and kernel that does not exist; names the ones that do."""

    anchor = "unsupported"


class DataError(BigSVMError):
    """Data or model content is bad: names the file, line, row, chunk or key."""

    code = 65
    anchor = "bad-data"


class NoSuchColumn(DataError):
    """A store has no column of the name that was given for labels or weights.

    column : that name
    """

    def __init__(self, what: str, where: str = "", hint: str = "", column: str = "") -> None:
        super().__init__(what, where, hint)
        self.column = column


class MissingInput(BigSVMError):
    """An input is not there or may not be read."""

    code = 66
    anchor = "missing-input"


class OutputError(BigSVMError):
    """Something cannot be written: names the path and the space needed, or the output exists."""

    code = 73
    anchor = "output"


class ReadFailed(BigSVMError):
    """The device or the remote store failed while reading."""

    code = 74
    anchor = "read-failed"


class TaskFailed(BigSVMError):
    """A block task failed on a worker for a reason of its own."""

    code = 74
    anchor = "task-failed"


class Interrupted(BigSVMError):
    """The run was asked to stop, or its cluster was lost.

    by : the signal that asked, such as SIGTERM; None if the cluster was lost
    reached : of a fit how far it came, as JSON has it; None of other work
    """

    code = 75
    anchor = "interrupted"
    by: str | None = None
    reached: dict[str, object] | None = None


class PlanRefused(BigSVMError):
    """The run cannot fit: names the smallest --memory or --scratch-limit that would do."""

    code = 78
    anchor = "plan-refused"

    def __init__(self, what: str, where: str = "", hint: str = "", min_memory_bytes: int | None = None) -> None:
        super().__init__(what, where, hint)
        self.min_memory_bytes = min_memory_bytes


class BudgetExceeded(PlanRefused):
    """A reservation did not fit the memory budget; names the holders."""

    anchor = "budget-exceeded"


def told_outside(method: Callable[P, T]) -> Callable[P, T]:
    """A public method of a model or a result: outside the package its errors are also Python's own, as of functions.

    Callers inside the package get them as they are raised: a command names flags, and `except OSError` around a file
    must not take them.
    """

    @functools.wraps(method)
    def called(*args: P.args, **options: P.kwargs) -> T:
        try:
            return method(*args, **options)
        except BigSVMError as error:
            if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] == "bigsvm":
                raise
            # Loaded by its name, because it is far above: it loads the table of all options.
            told = import_module("bigsvm.python_api.told").for_python(error)
            cause = error.__cause__
        raise told from cause

    return called


CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), "?")
"""For `str.translate`: what names and labels may contain, and a terminal would obey."""


def one_line(text: str) -> str:
    """The text without line ends and control characters, which names of files and labels may contain."""
    return " ".join(text.split()).translate(CONTROLS)


def in_words(error: BaseException, kind: bool = False) -> str:
    """The text of an exception, in one line, for use in a message; the name of its class if it has no text.

    kind : put the name of the class first, unless it is a BigSVMError or an OSError
    """
    if isinstance(error, BigSVMError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    missing = isinstance(error, KeyError) and len(error.args) == 1  # its text would be the bare key
    words = f"{error.args[0]!r} is missing" if missing else one_line(str(error))
    name = type(error).__name__
    if not words:
        return name
    return f"{name}: {words}" if kind else words


def anchor_of(code: int) -> str:
    """The section of docs/errors.md about an exit code, for failures that are not a BigSVMError."""
    kinds = (UsageError, DataError, MissingInput, OutputError, ReadFailed, Interrupted, PlanRefused)
    return next((kind.anchor for kind in kinds if kind.code == code), BigSVMError.anchor)
