"""Files are opened in a child process first, where a damaged one may end the process that opens it, or never let it go.

pyarrow, up to 26.0.1 at least, aborts where a Parquet footer contradicts itself, and HDF5 may go round in a circle of
damaged addresses.  No `except` sees either.  A forked child looks at the files, so a sound one costs some milliseconds,
and what it went through is remembered in the cache folder as long as names, sizes and times of the files stay.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import resource
import select
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

from bigsvm.errors import BigSVMError, DataError
from bigsvm.store.formats.tables.known_files import File, stat_file
from bigsvm.store.identity import digest_of
from bigsvm.store.remembered import made_folder, places
from bigsvm.units import MIB

DAMAGED_HINT = "restore the file, or write it again"
_CPU_S = 10  # of a child: looking takes milliseconds of it, however slow the device is,
_BYTES_PER_S = 64 * MIB  # and a second more for so many bytes of the files, which may have long tables of names
_PATIENCE_S = 30.0  # that a child does nothing, which was forked while another thread held what it waits for
_SAID = 4096
_PR_SET_PDEATHSIG = 1
_OF_A_CRASH = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


def look_first(paths: Sequence[str], look: Callable[[str], None], kind: str, options: tuple[object, ...] = ()) -> None:
    """Call `look` for each path in a child, unless that was done before; this process has to do it after that.

    look : opens a file as this process is going to; what it raises is left for this process to raise
    kind : of the files, for messages
    options : all else that decides what `look` does

    Raises DataError naming the file with which the child came to no good end.  Where there can be no child, or where it
    waits for what another thread held, nothing is known, and nothing is raised.
    """
    if sys.platform != "linux":
        return
    done = f"looked-at-{_known_by(paths, kind, options)}"
    if any(place.exists() for place in places(done)):
        return
    cpu_s = _CPU_S + sum(os.path.getsize(path) for path in paths) // _BYTES_PER_S
    n_seen, status, said = _in_child(paths, look, cpu_s)
    number = -os.waitstatus_to_exitcode(status)
    if n_seen < len(paths) and number == signal.SIGXCPU:
        what = f"damaged {kind} file: opening it does not come to an end"
        raise DataError(what, paths[n_seen], DAMAGED_HINT)
    if n_seen < len(paths) and number in _OF_A_CRASH:
        why = _reason(said) or f"the library that opens it ends by {signal.Signals(number).name}"
        raise DataError(f"damaged {kind} file: {why}", paths[n_seen], DAMAGED_HINT)
    if n_seen == len(paths):
        with suppress(OSError, BigSVMError):  # a cache that cannot be written only means to look again
            (made_folder() / done).touch()


def _known_by(paths: Sequence[str], kind: str, options: tuple[object, ...]) -> str:
    """A text that changes with all by which the content of files may have changed, or what is looked at."""
    files = [File.of(path, stat_file(path)).known_by for path in paths]
    return digest_of({"kind": kind, "options": repr(options), "files": files})


def _in_child(paths: Sequence[str], look: Callable[[str], None], cpu_s: int) -> tuple[int, int, str]:
    """(files that the child came through, its status as of `waitpid`, what it said on standard error)."""
    parent, libc = os.getpid(), ctypes.CDLL(None)
    seen, tell = os.pipe()
    errors, complain = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the child only looks
            child = os.fork()
    except OSError:  # no memory, or no more processes
        for handle in (seen, tell, errors, complain):
            os.close(handle)
        return 0, 0, ""
    if child == 0:
        try:
            libc.prctl(_PR_SET_PDEATHSIG, 9)  # what the parent held would live on in it
            if os.getppid() == parent:
                _prepare(complain, cpu_s)
                for path in paths:
                    with suppress(Exception):
                        look(path)
                    os.write(tell, b".")
        finally:
            os._exit(0)
    os.close(tell)
    os.close(complain)
    os.set_blocking(errors, False)  # a child of another thread may hold the other end, too
    n_seen, said = 0, b""
    try:
        worked = -1
        while n_seen < len(paths):
            if not select.select([seen], [], [], _PATIENCE_S)[0]:
                before, worked = worked, _cpu_of(child)
                if worked == before:
                    break
                continue
            dots = os.read(seen, _SAID)
            if not dots:
                break
            n_seen += len(dots)
        with suppress(BlockingIOError):
            said = os.read(errors, _SAID)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # one that has ended keeps the status that it ended with
        _, status = os.waitpid(child, 0)
        os.close(seen)
        os.close(errors)
    return n_seen, status, said.decode(errors="replace")


def _cpu_of(pid: int) -> int:
    """Ticks of the processor that a process has had."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()  # its name may hold anything
    return int(fields[11]) + int(fields[12])


def _prepare(complain: int, cpu_s: int) -> None:
    """Let the child end quietly, and touch nothing of its parent's."""
    gc.disable()  # what the parent left for collection may be files, which are the parent's to remove
    faulthandler.disable()
    for number in (*_OF_A_CRASH, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):  # a lower limit is in force
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    os.dup2(complain, 2)


def _reason(said: str) -> str:
    """What an exception of C++ that nobody caught said, as the runtime prints it."""
    lines = (line.strip() for line in said.splitlines())
    return next((line.removeprefix("what():").strip() for line in lines if line.startswith("what():")), "")
