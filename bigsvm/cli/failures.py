"""From an exception to the exit code of the contract, a message, and a hint what to try next."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from bigsvm.cli.habits import extra_meant, meant_by
from bigsvm.errors import BigSVMError, PlanRefused, one_line
from bigsvm.run.execute.signals import INTERRUPTED

EXIT_BUG, EXIT_USAGE, EXIT_NO_INPUT, EXIT_OUTPUT, EXIT_IO = 1, 2, 66, 73, 74
# Messages of the dynamic linker and the interpreter, which raise no class of their own when memory is refused.
_NO_MEMORY = ("cannot allocate memory", "failed to map segment", "can't start new thread", "can't allocate lock")


_SETTINGS = ("NUMBA_", "ZARR_", "DASK_", "PYTHONOPTIMIZE")
"""How the names of variables begin that change what libraries do; some values make these raise errors of any kind."""


class Failure(NamedTuple):
    """What the command line reports of a failure.

    said : a message, or a BigSVMError, which also says where
    """

    code: int
    said: Any
    hint: str


def failure_of(error: BaseException, debug: bool = False) -> Failure:
    """The report of the exception that ended a command.

    debug : the traceback is shown, so the hint need not ask for it
    """
    if isinstance(error, BigSVMError):
        from bigsvm.files.paths import rename  # the program's help has no use for it

        rename(error)
        return Failure(error.code, error, error.advice())
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return Failure(INTERRUPTED, "interrupted", "outputs appear whole or not at all: run the command again")
    if isinstance(error, click.ClickException):
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"see {error.ctx.command_path} --help"
            meant = meant_by(error.option_name, error.ctx.info_name) if isinstance(error, click.NoSuchOption) else ""
            if "unexpected extra argument" in error.message:  # click has no class of its own for it
                hint = extra_meant(error.ctx.info_name, error.ctx.params.get("verbose"), error.message) or hint
            if meant:
                return Failure(EXIT_USAGE, f"No such option {error.option_name!r}", meant)  # type: ignore[attr-defined]
        return Failure(EXIT_USAGE, _not_typed(error) + error.format_message().rstrip("."), hint)
    if any(map(_lacks_memory, _chain(error))):
        refused = _out_of_memory(error)
        return Failure(refused.code, refused, refused.hint)
    if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        # Names of outputs were checked before any work, so this is the name of an input.
        return Failure(EXIT_NO_INPUT, f"{error.filename}: {error.strerror}", "")
    if isinstance(error, PermissionError) and error.filename is not None:
        return Failure(EXIT_NO_INPUT, f"{error.filename}: cannot be read: {error.strerror}", "may this user read it?")
    if isinstance(error, OSError):
        if isinstance(error, FileNotFoundError) and error.filename is None and not _has_working_directory():
            return Failure(EXIT_NO_INPUT, "the working directory was removed", "cd to a folder that is there")
        # No code has turned it into a BigSVMError.  A full disk concerns an output, all else is a failing device.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = error.strerror or str(error)
        named = what if error.filename is None else f"{error.filename}: {what}"
        return Failure(EXIT_OUTPUT if full else EXIT_IO, named, "")
    settings = sorted(name for name in os.environ if name.startswith(_SETTINGS))
    hint = "this is a bug"
    if settings:
        hint += f", or an effect of these settings: run again without {', '.join(settings)}"
    hint += "" if debug else "; run again with --debug for the traceback"
    return Failure(EXIT_BUG, f"{type(error).__name__}: {error}", hint)


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _not_typed(error: click.ClickException) -> str:
    """The source of a bad value that was not typed, as a prefix of the message: a variable or a configuration file."""
    if (
        not isinstance(error, click.BadParameter)
        or error.ctx is None
        or error.param is None
        or error.param.name is None
    ):
        return ""
    source = error.ctx.get_parameter_source(error.param.name)
    if source is ParameterSource.ENVIRONMENT:
        return f"{error.ctx.auto_envvar_prefix}_{error.param.name.upper()}: "
    if source is ParameterSource.DEFAULT_MAP:
        return f"{error.ctx.params.get('config', 'the configuration')}: "
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it was raised from or during."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    said = str(error).lower() if isinstance(error, OSError | ImportError | RuntimeError) else ""
    return any(words in said for words in _NO_MEMORY)


def _out_of_memory(error: BaseException) -> PlanRefused:
    """The error for memory that the system refused; names the limit in force."""
    from bigsvm.machine import memory_limit
    from bigsvm.units import show_bytes

    limit = memory_limit()
    what = one_line(str(error))
    return PlanRefused(
        f"out of memory{f' ({what})' if what else ''}: the limit in force is {show_bytes(limit.nbytes)} "
        f"({limit.source})",
        hint="lower --memory or --threads, or raise the limit (ulimit -v, ulimit -u, the job's memory)",
    )
