"""What can go wrong, each with the exit code that outside scripts rely on.

Every error says what happened, where, and what to try next.  The command line prints it as one line.
"""

from __future__ import annotations

from typing import ClassVar


class BigSVMError(Exception):
    """A failure that is the world's and not a bug.

    Parameters
    ----------
    what : str     the failure, with the offending value
    where : str    file, line, row, chunk or key that it concerns; empty when there is none
    hint : str     the next thing to try; empty when there is none
    """

    code: ClassVar[int] = 1

    def __init__(self, what: str, where: str = "", hint: str = "") -> None:
        super().__init__(what, where, hint)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.hint})" if self.hint else text


class UsageError(BigSVMError):
    """The request makes no sense as typed."""

    code = 2


class Unsupported(UsageError):
    """A combination of solver, loss, bias and kernel that does not exist; names the ones that do."""


class DataError(BigSVMError):
    """Data or model content is bad: names the file, line, row, chunk or key."""

    code = 65


class MissingInput(BigSVMError):
    """An input is not there or may not be read."""

    code = 66


class OutputError(BigSVMError):
    """Something cannot be written: names the path and the space needed, or the output exists."""

    code = 73


class ReadFailed(BigSVMError):
    """The device or the remote store failed while reading."""

    code = 74


class TaskFailed(BigSVMError):
    """A block task failed on a worker for a reason of its own."""

    code = 74


class Interrupted(BigSVMError):
    """The run was asked to stop, or its cluster was lost."""

    code = 75


class PlanRefused(BigSVMError):
    """The run cannot fit: names the smallest --memory or --scratch-limit that would do."""

    code = 78

    def __init__(self, what: str, where: str = "", hint: str = "", min_memory_bytes: int | None = None) -> None:
        super().__init__(what, where, hint)
        self.min_memory_bytes = min_memory_bytes


class BudgetExceeded(PlanRefused):
    """A reservation did not fit the memory budget; names the holders."""
