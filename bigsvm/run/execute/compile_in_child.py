"""Compile in a child process: the memory that a compiler takes goes away with it, and never comes out of a budget.

numba holds some 100 MiB while it compiles, and keeps most of it.  A batch slot of budget + 256 MiB has no room for
that beside a run.  So a forked child compiles into the cache on disk, and this process only loads from there.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bigsvm.compiled import cache_folder

_PATIENCE_S = 300.0  # a child that takes longer is stuck: it was forked from many threads
_LOOK_S = 0.01
_PR_SET_PDEATHSIG = 1


def compiled_in_child(kind: object, call: Callable[[], object], load: bool = True) -> None:
    """Call `call`, which compiles, after a child has done so; only once a `kind` where `load` is False.

    kind : all that decides what `call` compiles, as its `repr` says it
    load : call it here as well, so that what was compiled is loaded
    """
    done = cache_folder() / f"compiled-{hashlib.sha256(repr(kind).encode()).hexdigest()[:16]}"
    with compile_lock():
        if not done.exists():
            if _in_child(call):
                done.touch()
            else:
                load = True
        if load:
            call()


@contextmanager
def compile_lock() -> Iterator[None]:
    """One compiling process at a time (two may not fill a folder of numba's); a dead one never blocks."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "compile.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _in_child(call: Callable[[], object]) -> bool:
    """Whether a forked child came to the end of `call`.  Raises MemoryError where the compiler got no memory."""
    if sys.platform != "linux":
        return False
    parent, libc = os.getpid(), ctypes.CDLL(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the child only compiles
        child = os.fork()
    if child == 0:
        status = 1
        try:
            # It holds what the parent held: killed, the parent must not live on in its child.
            libc.prctl(_PR_SET_PDEATHSIG, 9)
            if os.getppid() == parent:
                _say_nothing()
                call()
                status = 0
        finally:
            os._exit(status)
    until, ended = time.monotonic() + _PATIENCE_S, 0
    try:
        while not ended and time.monotonic() < until:
            time.sleep(_LOOK_S)
            ended, status = os.waitpid(child, os.WNOHANG)
    finally:
        if not ended:
            os.kill(child, 9)
            os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status) if ended else -signal.SIGKILL
    if code == -signal.SIGABRT:  # so LLVM ends where it is refused memory; this process would end the same way
        raise MemoryError("the compiler was refused memory")
    return code == 0


def _say_nothing() -> None:
    """What fails in the child is tried again by the parent, whose words count; and out of memory, words never end."""
    sys.unraisablehook = lambda _: None
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    os.close(quiet)
