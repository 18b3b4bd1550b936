"""Tasks on dask workers.

Dask schedules tasks over block addresses; the rows never become a dask collection.  A worker opens the store itself and
reads the blocks of its task.  So any worker may run any task, and a task that is lost with its worker is repeated.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import dask
from distributed import CancelledError, Client, KilledWorker, LocalCluster, wait
from distributed.client import AllExit, ClosedClientError

from bigsvm.errors import BigSVMError, DataError, Interrupted, MissingInput, TaskFailed, UsageError, in_words
from bigsvm.machine import core_count
from bigsvm.run.execute.dask_checks import RESUME, check_rows_and_room, check_versions, full_disk
from bigsvm.run.execute.dask_shards import ShardVerbs
from bigsvm.run.execute.traffic import Traffic, nbytes_of
from bigsvm.store.blocks import RowBlocks
from bigsvm.tasks import LOOK_S, NOBODY_S, PassLeft, ShardSum

T = TypeVar("T")
U = TypeVar("U")

CURRENT = "dask"
"""The scheduler of the current client, in Python."""
_WHERE = "threads, serial, processes, dask (the client of this process), or an address such as tcp://host:8786"
_RETRIES = 3
_ROUND_STARTS = 100
_OURS = {
    "distributed.worker.daemon": True,
    "distributed.scheduler.worker-ttl": "60s",  # after which a frozen worker counts as dead
    "distributed.scheduler.allowed-failures": 1000,  # workers that may be killed while they have the same task
    "distributed.scheduler.work-stealing": False,  # a stolen task would take its shard along
    "distributed.deploy.lost-worker-timeout": "120s",  # a busy machine may take long to restart a worker
}
"""Settings of dask during a fit.  Those of the scheduler only apply to a cluster that this process starts."""
_FETCH_S = 10.0  # time for a finished sum to arrive before it counts as lost; doubled at each failure
_STARTS = 3  # attempts to start the worker processes of this machine


class _Killed(Interrupted):
    """Several workers died, one after another, while they had the same task."""


class DaskMapper:
    """Submits shares to a cluster, at most two for each worker at one time; yields results in order.

    revive : restarts dead workers, if this process started the cluster
    """

    in_process = False

    def __init__(self, client: Any, n_workers: int, revive: Callable[[], object] = lambda: None) -> None:
        self._client, self._revive = client, revive
        self.n_workers = n_workers
        self.traffic = Traffic()
        self._shards = ShardVerbs(client, _RETRIES, self.traffic)

    def map(self, task: Callable[[T], U], shares: Iterable[T], at_most: int | None = None) -> Generator[U, None, None]:
        """As `Mapper` says."""
        flying: deque[Any] = deque()
        limit = min(at_most or 2 * self.n_workers, 2 * self.n_workers)
        try:
            for share in shares:
                flying.append(self._asked(partial(self._shards.shared, task, share)))
                if len(flying) >= limit:
                    yield self._counted(flying.popleft())
            while flying:
                yield self._counted(flying.popleft())
        finally:
            with suppress(ClosedClientError):  # then no worker has tasks that are worth cancelling
                for future in flying:
                    future.cancel()

    def publish(self, value: Any) -> Any:
        """As `Mapper` says."""
        return self._asked(lambda: self._shards.publish(value))

    def on_shards(
        self, task: Callable[..., ShardSum], shards: Sequence[Any], published: Any, at_most: int | None = None
    ) -> Any:
        """As `Mapper` says, except that `at_most` does not apply: a worker runs one task on each of its threads."""
        return self._asked(lambda: self._shards.on_shards(task, shards, published))

    def reduce(self, begun: Any, stopping: Callable[[], bool] | None = None) -> ShardSum:
        """As `Mapper` says.  Tasks of workers that are gone are sent to others."""
        for _ in range(_ROUND_STARTS):
            total = self._asked(partial(self._shards.total, begun))
            stranded, patience = partial(self._shards.stranded, begun), _FETCH_S
            with suppress(_Killed):
                while self._ends(total, stranded, stopping):
                    try:
                        return self._shards.taken(begun, self._result(total, patience))
                    except TimeoutError:  # the worker that had the sum is gone, so dask computes it again
                        patience *= 2.0
            if stopping is not None and stopping():
                self._asked(partial(self._shards.leave, begun, total))
                raise PassLeft
            begun = self._asked(partial(self._shards.sent_again, begun))
        raise Interrupted(f"workers were lost {_ROUND_STARTS} times in one round", hint=RESUME)

    def _ends(
        self, future: Any, stranded: Callable[[], bool], stopping: Callable[[], bool] | None = None
    ) -> bool:  # fmt: skip
        """Wait for a future.  False if it was lost, or if `stranded` says that it waits for a worker that is gone.

        stopping : asked every `LOOK_S` seconds; False is returned once it says that the run is to stop

        Raises Interrupted if there is no worker for `NOBODY_S` seconds.
        """
        seen = time.monotonic()
        while True:
            try:
                with self._client.as_current():  # the current client is set per thread, and proofs have their own
                    wait(future, timeout=LOOK_S)
                return True
            except TimeoutError:
                if stopping is not None and stopping():
                    return False
                if self._asked(self._shards.somebody):
                    seen = time.monotonic()
                    if self._asked(stranded):
                        return False
                    continue
                self._asked(self._revive)
                if time.monotonic() - seen > NOBODY_S:
                    what = f"the cluster was lost: no worker for {NOBODY_S:g} seconds"
                    raise Interrupted(what, hint=RESUME) from None
            except CancelledError as error:
                if self._client.status == "running":  # an operand was lost with its worker
                    return False
                raise Interrupted("the cluster was lost", hint=RESUME) from error

    def check(self, store: RowBlocks, scratch: Path | None, needed: int) -> None:
        """Refuse workers that cannot do their part; see `check_rows_and_room`."""
        check_rows_and_room(self._client, store, scratch, needed)

    def _counted(self, future: Any) -> Any:
        """The result of a task over a share, whose bytes are counted."""
        self._ends(future, lambda: False)
        found = self._result(future)
        self.traffic.row_bytes += nbytes_of(found)
        return found

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """The result of a request to the scheduler.

        Raises Interrupted if the connection is lost, OutputError if dask met a full disk.
        """
        try:
            return ask()
        except (OSError, TimeoutError, RuntimeError, ClosedClientError) as error:  # closed, or its scheduler gone
            raise full_disk(error) or Interrupted(f"the cluster was lost: {error}", hint=RESUME) from error

    def _result(self, future: Any, patience: float | None = None) -> Any:
        """The result of a finished future.

        Raises TimeoutError if it does not arrive within `patience` seconds, because dask has to compute it again;
        OutputError if the disk of a worker is full.
        """
        try:
            return future.result(timeout=patience)
        except BigSVMError:
            raise
        except TimeoutError as error:
            if patience is not None and future.status != "error":
                raise
            raise Interrupted(f"the cluster was lost: {error}", hint=RESUME) from error
        except OSError as error:
            raise full_disk(error) or Interrupted(f"the cluster was lost: {error}", hint=RESUME) from error
        except KilledWorker as error:
            raise _Killed(f"workers died while they ran a task: {error}", hint=RESUME) from error
        except Exception as error:
            if type(error).__name__ in ("CancelledError", "FutureCancelledError", "CommClosedError"):
                raise Interrupted("the cluster was lost", hint=RESUME) from error
            raise TaskFailed(f"a block task failed on a worker: {in_words(error, kind=True)}") from error


@contextmanager
def open_dask_mapper(scheduler: str | None, scheduler_file: str | None, workers: int | None) -> Iterator[DaskMapper]:
    """A mapper on worker processes of this machine ('processes'), on a running cluster, or by the current client.

    Raises
    ------
    MissingInput : nobody answers at the address, or the scheduler file is not there.
    UsageError : 'dask' where this process has no client, or a worker has other versions than this process.
    Interrupted : the cluster was lost while its workers were asked.
    """
    logging.getLogger("asyncio").addFilter(_is_for_users)
    # Workers own the cores: a BLAS or numba pool inside each would fight the others.
    with dask.config.set(_OURS):
        if scheduler == CURRENT and scheduler_file is None:
            client = _current_client()  # the user's own: it stays open
            yield DaskMapper(client, check_versions(client))
            return
        if scheduler_file is not None or scheduler not in (None, "processes"):
            client = _connect(scheduler, scheduler_file)
            try:
                yield DaskMapper(client, check_versions(client))
            finally:
                client.close()
            return
        n_workers = workers or core_count()
        with _local_cluster(n_workers) as cluster, _client_of(cluster) as client:
            # Dask does not restart a worker whose process died twice, unless it is asked to scale the cluster.
            yield DaskMapper(client, n_workers, partial(cluster.scale, n_workers))


def _is_for_users(record: logging.LogRecord) -> bool:
    """Whether a message of asyncio tells of an error.

    If a worker dies while a result is fetched, a task of dask may end by `AllExit`, by which dask stops its own waiting
    and which nobody takes.  asyncio would print a traceback, although the fit goes on.
    """
    return record.exc_info is None or record.exc_info[0] is not AllExit


def _current_client() -> Any:
    """Dask's current client in this process: the newest one, or that of `Client.as_current`."""
    client = Client.current(allow_global=True) if _has_client() else None
    if client is None or client.status != "running":
        raise UsageError("--scheduler dask, and this process has no dask client", hint=_WHERE)
    return client


def _has_client() -> bool:
    try:
        Client.current(allow_global=True)
    except ValueError:
        return False
    return True


class _Client(Client):
    """A client that closes at once if it cannot connect.

    Dask's own closes only when it is garbage-collected, and then takes a lock that all clients share.  If the collector
    runs while another client starts, on the thread that holds this lock, it waits for ever: the next fit after a failed
    one would hang.
    """

    def __init__(self, *where: Any, **options: Any) -> None:
        try:
            super().__init__(*where, **options)
        except BaseException:
            self.close()
            raise


def _local_cluster(n_workers: int) -> LocalCluster:
    """Worker processes of this machine; up to `_STARTS` attempts, since one may be killed before it is ready.

    Raises Interrupted if all attempts fail, OutputError if a disk is full.
    """
    said = ""
    for _ in range(_STARTS):
        try:
            return LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",  # any free port: two fits on one machine must not meet
                memory_limit=0,  # our own budget rules
                silence_logs=logging.CRITICAL,  # `_no_workers` reports a failed start
            )
        except (RuntimeError, OSError, TimeoutError) as error:
            if full := full_disk(error):
                raise full from error
            said = str(error) or type(error).__name__
    raise _no_workers(f"they failed {_STARTS} times: {said}")


def _client_of(cluster: LocalCluster) -> Any:
    try:
        return _Client(cluster)
    except (RuntimeError, OSError, TimeoutError) as error:
        raise full_disk(error) or _no_workers(str(error) or type(error).__name__) from error


def _no_workers(why: str) -> Interrupted:
    hint = "something may kill them, such as a limit on memory; repeat the command, or use --scheduler threads"
    if _unguarded():
        hint = (
            'each of them runs the script first: put its code below `if __name__ == "__main__":`, or use '
            "--scheduler threads"
        )
    return Interrupted(f"the worker processes did not start: {why}", hint=hint)


def _unguarded() -> bool:
    """Whether the program is a script that never asks for its name, and so would start workers in each worker."""
    try:
        return "__name__" not in Path(sys.modules["__main__"].__file__ or "").read_text("utf-8", "replace")
    except (AttributeError, KeyError, OSError):  # an interpreter that a user types into
        return False


def _names_an_address(scheduler_file: str) -> bool:
    try:
        return isinstance(json.loads(Path(scheduler_file).read_bytes())["address"], str)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _connect(scheduler: str | None, scheduler_file: str | None) -> Any:
    where = scheduler_file or scheduler or ""
    if scheduler is not None and scheduler_file is None and ":" not in scheduler:
        raise UsageError(f"not a scheduler: {scheduler!r}", hint=_WHERE)
    if scheduler_file is not None and not os.path.exists(scheduler_file):
        raise MissingInput("no such scheduler file", scheduler_file)
    if scheduler_file is not None and not _names_an_address(scheduler_file):
        raise DataError("not a scheduler file: it names no address", scheduler_file)
    try:
        if scheduler_file is not None:
            return _Client(scheduler_file=scheduler_file, timeout=10, set_as_default=False)
        return _Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise MissingInput(f"no dask scheduler answers: {error}", where) from error
    except TypeError as error:  # how dask says that tls:// has no certificate
        hint = "set distributed.comm.tls in dask's configuration (docs/cluster.md)"
        raise UsageError(f"cannot speak with that scheduler: {error}", where, hint) from error
