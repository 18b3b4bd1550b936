"""Workers that cannot do their part are refused before anything is read, by a sentence; a lost cluster is exit 75."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pytest
from distributed.client import AllExit, ClosedClientError
from pyarrow import feather

from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError, Interrupted, MissingInput, OutputError, PlanRefused, UsageError
from bigsvm.files.packed_text import text_bytes
from bigsvm.machine import MemoryLimit
from bigsvm.run.execute import dask as dask_mapper
from bigsvm.run.execute import dask_checks
from bigsvm.run.execute.dask import DaskMapper, open_dask_mapper
from bigsvm.run.execute.dask_checks import check_rows_and_room, check_versions, full_disk
from bigsvm.run.execute.dask_shards import ShardVerbs
from bigsvm.run.execute.traffic import Traffic
from bigsvm.run.fit.plan import make_plan
from bigsvm.run.workers.worker_memory import worker_bytes
from bigsvm.solvers.shard_tasks import forget_task
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.testing.problems import random_problem


class HereClient:
    """Two workers that are this process; `lost` is what asking them raises."""

    def __init__(self, lost: Exception | None = None, workers: int = 2) -> None:
        self.lost, self.workers = lost, workers

    def _run(self) -> None: ...

    def sync(self, run: Any, task: Callable[..., Any], *given: Any, **how: Any) -> dict[str, Any]:
        if self.lost is not None:
            raise self.lost

        def one() -> Any:
            try:
                return task(*given)
            except Exception as error:
                return error

        return {f"tcp://worker:{k}": one() for k in range(self.workers)}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    ingest(random_problem(50, 3, seed=1), tmp_path / "s.zarr")
    return tmp_path / "s.zarr"


def refusal(client: Any, *given: Any) -> BigSVMError:
    with pytest.raises(BigSVMError) as caught:
        check_rows_and_room(client, *given)
    return caught.value


def test_workers_that_see_all_may_work(store: Path, tmp_path: Path) -> None:
    check_rows_and_room(HereClient(), open_store(str(store)), tmp_path / "new" / "scratch", 1 << 20)
    check_rows_and_room(HereClient(), ArrayRows(*random_problem(9, 3, seed=1)), None, 1 << 20)
    assert not list((tmp_path / "new" / "scratch").iterdir())


def test_a_worker_without_the_rows_is_refused(store: Path) -> None:
    rows = open_store(str(store))
    away = HereClient()
    away.sync = lambda *given, **how: {"tcp://w:1": dask_checks._Seen("h", "not found", 66, True, 1 << 40, "")}
    assert isinstance(refusal(away, rows, None, 1), MissingInput)


def test_a_worker_that_does_not_see_the_scratch_folder_is_refused(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = dask_checks._look
    monkeypatch.setattr(dask_checks, "_look", lambda rows, mark: whole(rows, "/another/machine" + mark))
    error = refusal(HereClient(), open_store(str(store)), tmp_path / "scratch", 1)
    assert isinstance(error, UsageError)
    assert f"worker tcp://worker:0 does not see the scratch folder {tmp_path / 'scratch'}" in str(error)


def test_workers_under_one_limit_share_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_checks, "memory_limit", lambda: MemoryLimit(1 << 30, "cgroup /job"))
    rows = open_store(str(store))
    check_rows_and_room(HereClient(workers=2), rows, None, (1 << 29) - (256 << 20))
    error = refusal(HereClient(workers=2), rows, None, (1 << 29) - (256 << 20) + 1)
    assert isinstance(error, PlanRefused)
    assert "has 1 GiB for 2 workers (cgroup /job), and needs 512 MiB" in str(error)
    check_rows_and_room(HereClient(workers=1), rows, None, (1 << 30) - (256 << 20))


def test_workers_under_equal_limits_of_their_own_share_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = iter(("group 1", "group 2", "group 3", "group 3"))
    monkeypatch.setattr(dask_checks, "memory_limit", lambda: MemoryLimit(1 << 30, "cgroup v1", next(groups)))
    rows = open_store(str(store))
    check_rows_and_room(HereClient(workers=2), rows, None, (1 << 30) - (256 << 20))
    assert "for 2 workers" in str(refusal(HereClient(workers=2), rows, None, (1 << 30) - (256 << 20)))


@pytest.mark.parametrize("lost", [OSError("Timed out"), TimeoutError(), RuntimeError("closed"), ValueError("?")])
def test_a_cluster_that_is_lost_while_it_is_asked_is_an_interruption(lost: Exception, store: Path) -> None:
    with pytest.raises(Interrupted) as caught:
        check_versions(HereClient(lost))
    assert (caught.value.code, "repeat the command" in caught.value.hint) == (75, True)
    assert isinstance(refusal(HereClient(lost), open_store(str(store)), None, 1), Interrupted)


def test_a_cluster_without_workers_says_so() -> None:
    with pytest.raises(Interrupted, match="the cluster has no worker"):
        check_versions(HereClient(workers=0))


@pytest.mark.parametrize("solver", ["dcd", "newton-ws"])
def test_what_a_worker_holds_falls_with_the_workers(solver: str) -> None:
    X = np.ones((4000, 30), np.float32)
    X[::2] = -1.0
    rows = ArrayRows(X, np.tile([0, 1], 2000))
    config = FitConfig.of(solver=solver, loss="hinge", shards=8, memory="64MiB")
    one, two, eight, many = (worker_bytes(make_plan(rows, config), k) for k in (1, 2, 8, 100))
    assert one > two > eight == many
    assert (one - two) * 3 == (two - eight) * 4  # 8, 4 and 1 shards
    plan = make_plan(rows, config)
    held = {need.what: need.nbytes for need in plan.needs}
    assert one >= plan.row_buffer_bytes + held.get("slacks", 0) + held.get("working set", 0) + held["alpha"] - 8


@pytest.mark.parametrize("form", ["names", "categories"])
@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("solver", ["dcd", "newton-ws"])
def test_names_and_categories_are_part_of_what_a_worker_needs(
    solver: str, shards: int, form: str, tmp_path: Path
) -> None:
    def needs(length: int) -> tuple[int, int]:
        """(bytes of a worker; of the names that the store holds)."""
        texts = [f"{k:05d}" + length * "n" for k in range(2000)]
        if form == "names":
            path = tmp_path / f"{length}.zarr"
            feather.write_feather(pa.table({"label": [0, 1] * 4, **{name: np.arange(8.0) for name in texts}}), path)
            ingest(path.rename(tmp_path / "names.feather"), path)
        else:
            path = tmp_path / f"{length}.feather"
            feather.write_feather(pa.table({"label": np.arange(2000) % 2, "x": texts}), path)
        rows = open_store(path)
        config = FitConfig.of(solver=solver, loss="hinge", shards=shards, memory="512MiB")
        return worker_bytes(make_plan(rows, config), 2), text_bytes(rows.feature_names)

    (short, _), (long, names) = needs(1), needs(1000)
    assert names >= 2_000_000
    assert long - short == names


def test_workers_that_nobody_starts_again_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask lets go of a worker whose process did not come back in time, and of its starter: nobody would come."""
    asked: list[int] = []

    class Waiting:
        """A client whose future ends once a worker was asked for twice; there is none before."""

        def as_current(self) -> Any:
            return nullcontext()

        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            return {"workers": {}}

    waited: list[float] = []

    def wait(future: Any, timeout: float) -> None:
        waited.append(timeout)
        if len(asked) < 2:
            raise TimeoutError if len(waited) < 9 else AssertionError("nobody was asked")

    monkeypatch.setattr(dask_mapper, "wait", wait)
    assert DaskMapper(Waiting(), 2, lambda: asked.append(1))._ends(None, lambda: False)
    assert len(asked) == 2
    monkeypatch.setattr(dask_mapper, "NOBODY_S", -1.0)
    asked.clear()
    with pytest.raises(Interrupted, match="no worker for"):
        DaskMapper(Waiting(), 2)._ends(None, lambda: False)


def test_a_client_that_has_closed_by_itself_is_a_lost_cluster() -> None:
    """As dask's does once its scheduler was gone for long: it knows of nothing, and refuses what would be sent."""

    def refused(*given: Any, **how: Any) -> None:
        raise ClosedClientError

    class Closed:
        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            return {}

        def submit(self, *given: Any, **how: Any) -> Any:
            self.submit = refused  # from the first one on
            return SimpleNamespace(cancel=refused)

    mapper = DaskMapper(Closed(), 2)
    for ask in (lambda: mapper.on_shards(forget_task, [0, 1], None), lambda: list(mapper.map(abs, [-1, -2]))):
        with pytest.raises(Interrupted, match="the cluster was lost"):
            ask()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_lost_cluster(number: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a task on a worker, of dask's own client, and of the checks: to run again would not help."""
    full = OSError(number, os.strerror(number), "/disk/of/a/worker")

    def refused(*given: Any, **how: Any) -> None:
        raise full

    monkeypatch.setattr(dask_mapper, "wait", lambda *given, **how: None)
    client: Any = SimpleNamespace(as_current=nullcontext, submit=lambda *given, **how: task, scheduler_info=refused)
    task = SimpleNamespace(result=refused, cancel=lambda: None, status="error")
    mapper = DaskMapper(client, 2)
    asked: list[Callable[[], Any]] = [
        lambda: list(mapper.map(abs, [-1, -2])),
        lambda: mapper.on_shards(forget_task, [0, 1], None),
        lambda: check_versions(HereClient(full)),
        lambda: check_rows_and_room(HereClient(full), open_store(str(store)), None, 1),
    ]
    for ask in asked:
        with pytest.raises(OutputError, match=os.strerror(number)) as caught:
            ask()
        assert caught.value.where == "/disk/of/a/worker"

    def not_started(**how: Any) -> None:
        raise RuntimeError("Nanny failed to start") from full

    monkeypatch.setattr(dask_mapper, "LocalCluster", not_started)
    with pytest.raises(OutputError):
        dask_mapper._local_cluster(2)


def test_a_worker_has_time_to_start_again_where_the_cluster_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def cluster(n_workers: int) -> Any:
        given.append(dask.config.get("distributed.deploy.lost-worker-timeout"))
        raise Interrupted("enough is known")

    monkeypatch.setattr(dask_mapper, "_local_cluster", cluster)
    with pytest.raises(Interrupted, match="enough is known"), open_dask_mapper("processes", None, 2):
        pass
    assert given == ["120s"]


def test_what_several_workers_died_of_is_sent_as_a_new_task() -> None:
    """Dask fails a task for good whose workers were killed one after another; those that wait for it fail with it."""

    class Sending:
        """A client of two workers, whose tasks wait."""

        def submit(self, *given: Any, **how: Any) -> Any:
            return SimpleNamespace(status="pending", cancel=lambda: None, given=given)

        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            return {"workers": {"a": {}, "b": {}}}

    verbs = ShardVerbs(Sending(), 3, Traffic())
    value = np.ones(3)
    begun = verbs.on_shards(forget_task, [0, 1], verbs.publish(value))
    assert verbs.sent_again(begun) == begun
    begun.futures[0].status = "error"
    once = verbs.sent_again(begun)
    assert (once.futures[0] is begun.futures[0], once.futures[1] is begun.futures[1]) == (False, True)
    assert once.published is begun.published
    begun.published.future.status = "error"
    again = verbs.sent_again(begun)
    assert again.published.value is value
    assert again.published.future.status == "pending"
    assert again.futures[0].given[-1] is again.published.future


def test_a_full_disk_that_is_not_the_cause_is_none() -> None:
    """An exception that was raised `from None` has no cause, and causes may lead in a circle."""
    full, reset = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), OSError(errno.ECONNRESET, "reset")
    reset.__context__ = full
    assert full_disk(reset) is not None
    reset.__suppress_context__ = True
    assert full_disk(reset) is None
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__context__ = other, one
    assert full_disk(one) is None


def test_what_dask_tells_itself_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio reports it as an exception that was never retrieved, although the fit goes on without that worker."""
    logger, told = logging.getLogger("asyncio"), []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", told.append)
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "disabled", False)  # other libraries configure all loggers
    monkeypatch.setattr(logger, "level", logging.ERROR)
    with pytest.raises(UsageError, match="not a scheduler"), open_dask_mapper("nowhere", None, None):
        pass
    for error in (AllExit(), ValueError("of somebody else")):
        logger.error("Task exception was never retrieved", exc_info=error)
    assert [record.exc_info[0] for record in told if record.exc_info] == [ValueError]
