"""The seam between a run and whoever does its work: one loop, in order, and nothing runs on when it is left."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bigsvm.run.execute import local
from bigsvm.run.execute.local import SerialMapper, ThreadMapper
from bigsvm.solvers import shard_tasks
from bigsvm.tasks import PassLeft, over_shares, runs_of, side_by_side

PACKAGE = Path(__file__).parents[1] / "bigsvm"
SOURCES = sorted(PACKAGE.rglob("*.py"))


class Squared(NamedTuple):
    value: int
    bytes_read: int


def square(share: int) -> Squared:
    return Squared(share * share, 10 * share)


class Account:
    """Is asked to stop after so many results."""

    def __init__(self, stop_after: int = 1 << 30) -> None:
        self.bytes_read, self._left = 1000, stop_after

    def charge(self, nbytes: int) -> None:
        self.bytes_read += nbytes

    def uncharge(self, to: int) -> None:
        self.bytes_read = to

    def stopping(self) -> bool:
        self._left -= 1
        return self._left <= 0


class WatchedMapper:
    """Runs tasks here, `at_most` ahead of the results that are taken; tells what was sent and whether it was closed."""

    in_process = True
    n_workers = 1

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.closed = 0

    def map(
        self, task: Callable[[Any], Any], shares: Iterable[Any], at_most: int | None = None
    ) -> Generator[Any, None, None]:
        try:
            waiting = []
            for share in shares:
                self.sent.append(share)
                waiting.append(task(share))
                if len(waiting) == at_most:
                    yield waiting.pop(0)
            yield from waiting
        finally:
            self.closed += 1


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def calls(tree: ast.AST, function: str) -> list[ast.Call]:
    """Calls of a function or method of that name."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in found if ast.unparse(call.func).rpartition(".")[2] == function]


def test_work_leaves_the_process_at_one_place_only() -> None:
    places = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}"
        for path in SOURCES
        for call in calls(parsed(path), "map")
        if "mapper" in ast.unparse(call.func).lower()
    ]
    assert len(places) == 1
    assert places[0].startswith("tasks.py:")


def test_a_task_is_a_function_of_a_module_and_a_share_can_be_sent() -> None:
    """Both go to other processes: a closure would work on threads, and fail on a cluster."""
    tasks: dict[str, Any] = {}
    for path in SOURCES:
        tree = parsed(path)
        named = [ast.unparse(call.args[1]) for call in calls(tree, "over_shares") if path.name != "tasks.py"]
        named = [name for name in named if name != "task"]
        if named:
            module = importlib.import_module(".".join(("bigsvm", *path.relative_to(PACKAGE).with_suffix("").parts)))
            tasks |= {name: getattr(module, name) for name in named}
    assert len(tasks) >= 9
    for name, task in tasks.items():
        assert inspect.isfunction(task), name
        assert pickle.loads(pickle.dumps(task)) is task, name
        (share,) = inspect.signature(task, eval_str=True).parameters.values()
        assert issubclass(share.annotation, tuple), name
        assert hasattr(share.annotation, "_fields"), name
        assert pickle.loads(pickle.dumps(share.annotation)) is share.annotation, name


def test_a_task_on_shards_takes_a_shard_and_what_all_are_told() -> None:
    named = {ast.unparse(call.args[0]) for path in SOURCES for call in calls(parsed(path), "_on_shards")}
    assert len(named) >= 3
    for name in named:
        task = getattr(shard_tasks, name.removeprefix("shard_tasks."))
        assert inspect.isfunction(task), name
        assert pickle.loads(pickle.dumps(task)) is task, name
        shard, _ = inspect.signature(task, eval_str=True).parameters.values()
        assert shard.annotation is shard_tasks.Shard, name
    assert pickle.loads(pickle.dumps(shard_tasks.Shard)) is shard_tasks.Shard


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_results_come_in_the_order_of_the_pieces(n: int) -> None:
    pieces = list(range(n))
    expected = [(piece, Squared(piece * piece, 10 * piece)) for piece in pieces]
    with ThreadMapper(3) as threads:
        for mapper in (SerialMapper(), threads, WatchedMapper()):
            for given in (pieces, iter(pieces)):
                assert list(over_shares(mapper, square, given, lambda piece: piece)) == expected


def test_a_share_is_made_just_before_it_is_sent() -> None:
    mapper, made = WatchedMapper(), []

    def share(piece: int) -> int:
        made.append(piece)
        return piece

    loop = over_shares(mapper, square, iter(range(9)), share, 3)
    assert made == []
    for piece, _ in loop:
        assert len(made) == len(mapper.sent) == min(piece + 3, 9)


def test_reads_are_charged_and_a_run_that_stops_leaves() -> None:
    """What was read counts once it was used; a pass that is left has read nothing, and its mapper is closed by then."""
    account, mapper, used = Account(stop_after=3), WatchedMapper(), []
    loop = over_shares(mapper, square, range(9), lambda piece: piece, 2, account=account, may_leave=True)
    with pytest.raises(PassLeft):
        used.extend((piece, account.bytes_read) for piece, _ in loop)
    assert used == [(0, 1000), (1, 1000), (2, 1010)]
    assert account.bytes_read == 1000
    assert (mapper.closed, mapper.sent) == (1, [0, 1, 2, 3])
    account = Account(stop_after=1)
    assert len(list(over_shares(SerialMapper(), square, range(9), lambda piece: piece, account=account))) == 9
    assert account.bytes_read == 1000 + 360  # who may not leave is not asked


def test_no_task_runs_on_when_the_loop_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may write into the caller's arrays.  The first result is there; the other tasks wait until they are."""
    go, started, ended = threading.Event(), [], []

    def task(share: int) -> int:
        started.append(share)
        if share:
            go.wait(60)
        ended.append(share)
        return share

    def waited_for(futures: Iterable[Any]) -> Any:
        go.set()
        return wait(futures)

    wait = local.wait
    monkeypatch.setattr(local, "wait", waited_for)
    with ThreadMapper(3) as mapper:
        loop: Iterator[Any] = over_shares(mapper, task, iter(range(9)), lambda piece: piece)
        assert next(loop) == (0, 0)
        loop.close()  # type: ignore[attr-defined]
        try:
            assert sorted(ended) == sorted(started)
        finally:
            go.set()
    assert len(started) <= 4


def test_a_task_that_closes_its_own_loop_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the collector of garbage may do, which runs on any thread."""
    suspended, closed, waited = threading.Event(), threading.Event(), []

    def task(share: int) -> int:
        if share:
            suspended.wait(60)
            results.close()
            closed.set()
        return share

    monkeypatch.setattr(local, "wait", waited.append)
    with ThreadMapper(1) as mapper:
        results = mapper.map(task, iter([0, 1]))
        assert next(results) == 0
        suspended.set()
        assert closed.wait(60)
    assert waited == []


def test_what_a_task_raises_comes_at_its_place() -> None:
    def task(share: int) -> float:
        return 1 / (2 - share)

    with ThreadMapper(2) as threads:
        for mapper in (SerialMapper(), threads):
            loop = over_shares(mapper, task, iter(range(5)), lambda piece: piece)
            assert [next(loop), next(loop)] == [(0, 0.5), (1, 1.0)]
            with pytest.raises(ZeroDivisionError):
                next(loop)


def test_runs_cover_all_addresses_in_order() -> None:
    assert list(runs_of(range(7), 3)) == [(0, 1, 2), (3, 4, 5), (6,)]
    assert list(runs_of([], 3)) == []


@pytest.mark.parametrize(("items", "at_most", "threads"), [([], 4, 0), ([7], 4, 0), ([7, 8, 9], 1, 0), ([7, 8], 4, 2)])
def test_no_thread_is_started_where_one_would_do(items: list[int], at_most: int, threads: int) -> None:
    together = threading.Barrier(max(threads, 1))

    def work(item: int) -> tuple[int, str]:
        together.wait(60)
        return item * item, threading.current_thread().name

    found = side_by_side(work, items, at_most, "beside")
    assert [square for square, _ in found] == [item * item for item in items]
    assert len({name for _, name in found if name.startswith("beside")}) == threads
