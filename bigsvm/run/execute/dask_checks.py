"""Checks of the workers before a fit begins: the same versions, the same rows, and enough memory."""

from __future__ import annotations

import errno
import socket
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from distributed import get_worker
from distributed.protocol import pickle as wire

from bigsvm.compiled.cache.stamp import CHANGED, difference, versions
from bigsvm.config import BASE_BYTES
from bigsvm.errors import (
    BigSVMError,
    DataError,
    Interrupted,
    MissingInput,
    OutputError,
    PlanRefused,
    UsageError,
    in_words,
)
from bigsvm.files.space import cannot_write
from bigsvm.machine import memory_limit
from bigsvm.store.blocks import RowBlocks
from bigsvm.units import show_bytes

_GO = "repeat the command, a fit with --resume"
RESUME = f"start it again and {_GO}"
_ANSWER_S = 60.0  # time that a worker has to answer


def full_disk(error: BaseException) -> OutputError | None:
    """The error of a full disk, if an exception of a task or of dask is one, or was raised from one; else None.

    Such a cluster is not lost: to repeat the command would fail again.  How much is free is not said, since the disk
    may be that of another machine.
    """
    seen: BaseException | None = error
    known: set[int] = set()
    while seen is not None and id(seen) not in known:  # `raise ... from` can lead in a circle
        known.add(id(seen))
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT):
            what = f"cannot write, in a worker or for dask: {seen.strerror or seen}"
            hint = "free space on the disks of the workers, of --scratch and of the temporary folder"
            return OutputError(what, str(seen.filename or ""), hint)
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return None


def answers(client: Any, task: Callable[..., Any], *given: Any) -> dict[str, Any]:
    """Address of each worker -> what `task` returned there, or the exception that it raised.

    Raises Interrupted if there is no worker, one does not answer, or the cluster is lost meanwhile; OutputError if a
    disk is full.
    """
    try:
        found: dict[str, Any] = client.sync(
            client._run, task, *given, on_error="return", callback_timeout=_ANSWER_S
        )  # `Client.run` would wait for a frozen worker
    except TimeoutError as error:
        raise Interrupted(f"a worker did not answer within {_ANSWER_S:g} seconds", hint=RESUME) from error
    except Exception as error:  # whatever dask calls a connection that is gone
        raise full_disk(error) or Interrupted(
            f"the cluster was lost: {in_words(error, kind=True)}", hint=RESUME
        ) from error
    if not found:
        raise Interrupted("the cluster has no worker", hint="start one: dask worker --scheduler-file FILE")
    return dict(sorted(found.items()))


_SAME = "models would depend on who computes: install the same versions"


def checked(ours: dict[str, str], task: Callable[..., Any], *given: Any) -> Any:
    """Task: run a task, if this worker has the versions of the caller; it may have joined after `check_versions`.

    Raises Interrupted, because a resumed fit goes on once the worker has gone.
    """
    if what := difference(ours):
        worker = get_worker().address
        raise Interrupted(f"worker {worker} joined, and {what}", hint=f"stop it, or install the same there; then {_GO}")
    return task(*given)


def check_versions(client: Any) -> int:
    """The number of workers.  Raises UsageError if one has other versions than this process, or that is not known."""
    ours = versions()
    if any(version.startswith(CHANGED) for version in ours.values()):
        what = "bigsvm was changed on disk after this process had loaded it, so workers cannot be compared with it"
        raise UsageError(what, hint="start this process again, and the workers")
    found = answers(client, difference, ours)
    for worker, what in found.items():
        if isinstance(what, OSError):
            raise full_disk(what) or Interrupted(f"worker {worker} was lost: {in_words(what, kind=True)}", hint=RESUME)
        if isinstance(what, BaseException):
            raise UsageError(
                f"worker {worker} cannot load bigsvm: {in_words(what, kind=True)}", hint="install it there, too"
            )
        if what:
            raise UsageError(f"worker {worker} {what}", hint=_SAME)
    return len(found)


class _Seen(NamedTuple):
    """What a worker reports of its machine.

    fault, code : why it cannot read the rows, and the exit code for that; '' and 0 if it can
    scratch : it sees the file that the calling process made in the scratch folder
    memory, limit, whose : bytes that it may use, the limit that says so, and whom that limit is for
    """

    host: str
    fault: str
    code: int
    scratch: bool
    memory: int
    limit: str
    whose: str = ""


def _look(rows: bytes, mark: str) -> _Seen:
    fault, code = "", 0
    try:
        if rows:
            wire.loads(rows)  # opens the store, and compares its fingerprint
    except BigSVMError as error:
        fault, code = str(error), error.code
    except OSError as error:
        fault, code = str(error), MissingInput.code
    limit = memory_limit()
    here = not mark or Path(mark).exists()
    return _Seen(socket.gethostname(), fault, code, here, limit.nbytes, limit.source, limit.whose)


def check_rows_and_room(client: Any, store: RowBlocks, scratch: Path | None, needed: int) -> None:
    """Check on each worker that it sees the rows and the scratch folder, and has enough memory.

    scratch : folder that all workers must see; None if they need none
    needed : bytes that a worker will hold, beside its interpreter; workers of one machine under one limit share it

    Raises
    ------
    DataError, MissingInput : a worker has other rows under this name, or none.
    UsageError : a worker does not see the scratch folder;  PlanRefused : one has too little memory.
    """
    by_name = "://" in store.uri or Path(store.uri).exists()  # arrays are sent with each task
    mark = None if scratch is None else scratch / f".seen-{uuid.uuid4().hex[:12]}"
    try:
        if mark is not None:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        found = answers(client, _look, wire.dumps(store) if by_name else b"", str(mark or ""))
    except OSError as error:
        raise cannot_write(mark or Path(), error) from error
    finally:
        if mark is not None:
            mark.unlink(missing_ok=True)
    seen = {
        worker: what for worker, what in found.items() if isinstance(what, _Seen)
    }  # an exception means that the worker is gone
    sharing = Counter((what.host, what.whose) for what in seen.values())
    for worker, what in seen.items():
        if what.fault:
            error_of = MissingInput if what.code == MissingInput.code else DataError
            raise error_of(f"worker {worker} cannot use the rows: {what.fault}", store.uri)
        if not what.scratch:
            hint = "use --scratch DIR, a folder on a disk that all workers see"
            raise UsageError(f"worker {worker} does not see the scratch folder {scratch}", hint=hint)
        beside = sharing[what.host, what.whose]
        if what.memory // beside < needed + BASE_BYTES:
            whose = "" if beside == 1 else f" for {beside} workers"
            raise PlanRefused(
                f"worker {worker} has {show_bytes(what.memory)}{whose} ({what.limit}), and needs "
                f"{show_bytes(needed + BASE_BYTES)}",
                hint="give it more, say a smaller --memory, or start more workers: each then has fewer shards",
            )
