"""Compile in a child process: the memory that a compiler takes goes away with it, and never comes out of a budget.

numba holds some 100 MiB while it compiles, and keeps most of it.  A batch slot of budget + 256 MiB has no room for
that beside a run.  So a forked child compiles into the cache on disk, and this process only loads from there.  Where
all is in a cache already, it is loaded and nothing is forked; loading waits for nobody.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import hashlib
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from numba.core import event

from bigsvm.compiled import cache_folder
from bigsvm.compiled.cache.functions import NotCompiled, loading_only, told_of_compiling
from bigsvm.compiled.cache.options import compare_quickly
from bigsvm.compiled.cache.places import SHIPPED, shipped
from bigsvm.events import COMPILING, WAITING, CompileStarted, Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.files.locks import holder, sign, take, wait_for

_PATIENCE_S = 300.0  # a child that takes longer is stuck: it was forked from many threads
_LOOK_S = 0.01
_OBJECTS = 20_000  # new ones between two looks for garbage: some megabytes
_PR_SET_PDEATHSIG = 1
_REMEMBERED = 4096  # kinds
_DONE, _FAILED, _NOT_COMPILED = 0, 1, 3
"""How a child ends."""


def compiled_in_child(kind: object, call: Callable[[], object], load: bool = True, emit: Emit = silent) -> None:
    """Call `call`, which compiles, after a child has done so; only once a `kind` where `load` is False.

    kind : all that decides what `call` compiles, as its `repr` says it
    load : call it here as well, so that what was compiled is loaded
    emit : is told when something has to be compiled, and how many functions were

    What this process has called before is loaded, and is not called again: that is half the time of a small fit.

    Raises MemoryError where the compiler got no memory.
    """
    if not load:
        _compiled_once(kind, call, emit)
        return
    name = hashlib.sha256(repr(kind).encode()).digest()
    if name not in _called:
        _load_or_compile(call, emit)
        if len(_called) == _REMEMBERED:
            _called.clear()
        _called.add(name)


_called: set[bytes] = set()
"""Kinds that this process has called, by digest: numba's functions stay loaded as long as it lives."""


def _load_or_compile(call: Callable[[], object], emit: Emit) -> None:
    """Call `call`, after a child has where the caches do not have all of it."""
    if not _loaded(call):
        with compile_lock(emit):
            if _loaded(call):  # another process compiled it meanwhile
                return
            compiled = _compile(call, emit)
        if compiled and not _loaded(call):
            emit(Warned(f"{cache_folder()} {_NOT_KEPT}"))
        call()


_NOT_KEPT = "keeps nothing of what was compiled: is it full?  Each start compiles anew; see BIGSVM_CACHE"


def _compiled_once(kind: object, call: Callable[[], object], emit: Emit) -> None:
    """As a file in the cache remembers it: nothing is loaded by which one could tell."""
    came_with = shipped(SHIPPED).levels  # where these go away, what they were enough for is to be compiled
    done = cache_folder() / f"compiled-{hashlib.sha256(repr((kind, came_with)).encode()).hexdigest()[:16]}"
    if done.exists():
        return
    if _in_child(call, silent, load=True) != _DONE:
        with compile_lock(emit):
            if done.exists():
                return
            if not _compile(call, emit):
                call()
    with suppress(OSError):
        done.touch()


def _loaded(call: Callable[[], object]) -> bool:
    """Whether the caches have all that `call` calls; then it was called."""
    try:
        with loading_only():
            call()
    except NotCompiled:
        return False
    return True


@contextmanager
def compile_lock(emit: Emit = silent) -> Iterator[None]:
    """One compiling process at a time, so that others find what it compiled; a dead one never blocks.

    emit : is told of another process that is waited for
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "compile.lock", "a+") as lock:
        if not take(lock, fcntl.LOCK_EX):
            waiting, began = f"{WAITING}{holder(lock)}, which compiles", time.monotonic()
            emit(WorkStarted(waiting, 0, ""))
            wait_for(lock)
            emit(WorkEnded(waiting, time.monotonic() - began))
        sign(lock)
        yield


def _compile(call: Callable[[], object], emit: Emit) -> bool:
    """Whether a child has called `call`, compiling."""
    emit(CompileStarted(str(cache_folder()), shipped(SHIPPED).why_not))
    with event.trigger_event("numba:compile"):  # who measures how long this process compiles counts the child's time
        return _in_child(call, emit, load=False) == _DONE


def _in_child(call: Callable[[], object], emit: Emit, load: bool) -> int:
    """How a forked child ended that called `call`.  Raises MemoryError where the compiler got no memory.

    load : it may only load, and ends with _NOT_COMPILED where that is not enough
    """
    if sys.platform != "linux":
        return _NOT_COMPILED if load else _FAILED
    parent, libc = os.getpid(), ctypes.CDLL(None)
    count, tell = os.pipe()
    os.set_blocking(count, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the child only compiles
        child = os.fork()
    if child == 0:
        status = _FAILED
        try:
            # It holds what the parent held: killed, the parent must not live on in its child.
            libc.prctl(_PR_SET_PDEATHSIG, 9)
            if os.getppid() == parent:
                _say_nothing()
                if load:
                    status = _DONE if _loaded(call) else _NOT_COMPILED
                else:
                    _collect_rarely()
                    compare_quickly()
                    with told_of_compiling(lambda: os.write(tell, b".")):
                        call()
                    status = _DONE
        finally:
            os._exit(status)
    os.close(tell)
    until, ended, compiled = time.monotonic() + _PATIENCE_S, 0, 0
    try:
        while not ended and time.monotonic() < until:
            time.sleep(_LOOK_S)
            ended, status = os.waitpid(child, os.WNOHANG)
            new = _bytes_in(count)
            compiled += new
            if new:
                emit(WorkAdvanced(COMPILING, compiled))
    finally:
        os.close(count)
        if not ended:
            os.kill(child, 9)
            os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status) if ended else -signal.SIGKILL
    if code == -signal.SIGABRT:  # so LLVM ends where it is refused memory; this process would end the same way
        raise MemoryError("the compiler was refused memory")
    return code


def _bytes_in(pipe: int) -> int:
    """How many bytes wait in a pipe that is not waited for; they are taken out."""
    try:
        return len(os.read(pipe, 4096))
    except BlockingIOError:
        return 0


def _collect_rarely() -> None:
    """Looking for garbage is a tenth of compiling: what the parent made stays, and little of the rest goes."""
    gc.freeze()
    gc.set_threshold(_OBJECTS)


def _say_nothing() -> None:
    """What fails in the child is tried again by the parent, whose words count; and out of memory, words never end."""
    sys.unraisablehook = lambda _: None
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    os.close(quiet)
