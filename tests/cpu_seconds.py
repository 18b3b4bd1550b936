"""CPU seconds by test file, on request: `python -m pytest -q -n 2 -p tests.cpu_seconds`, with an empty BIGSVM_CACHE.

The suite has a budget of CPU seconds, not of wall seconds, which depend on what else the machine does.  User and system
time count, of pytest's processes, of every child that somebody waited for, and of those that go on, such as one that
serves several tests.  What compiling took of it is told apart: in the test's own process as numba's events say, and in
the forked child of `bigsvm.compile_in_child`.  Programs that a test starts compile unseen, and count as children.
"""

from __future__ import annotations

import collections
import contextlib
import os
import resource
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from numba.core import event

from bigsvm import compile_in_child

COLUMNS = ("all", "children", "compiling", "tests")
_SLOWEST, _WORTH_TELLING = 40, 0.5


def _seconds(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _seconds_of_children() -> float:
    """Of those that ended, and of those that go on, with whom these waited for."""
    ticks = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread or a child that ends meanwhile
            for child in listed.read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(int(field) for field in fields[11:15])
    return _seconds(resource.RUSAGE_CHILDREN) + ticks / os.sysconf("SC_CLK_TCK")


class Compiling(event.Listener):
    """CPU seconds that numba compiled for in this process, calls within calls counted once; and in forked children."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._began = 0.0, 0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._began = _seconds(resource.RUSAGE_SELF)
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += _seconds(resource.RUSAGE_SELF) - self._began

    def in_child(self, plain: Callable[..., int]) -> Callable[..., int]:
        """`plain`, which compiles in a child and waits for it, with the child's seconds counted."""

        def counted(*arguments: Any, **named: Any) -> int:
            before = _seconds(resource.RUSAGE_CHILDREN)
            try:
                return plain(*arguments, **named)
            finally:
                self.seconds += _seconds(resource.RUSAGE_CHILDREN) - before

        return counted


class CpuSeconds:
    """Counts in each of pytest's processes; the one that reports adds up."""

    def __init__(self) -> None:
        self.compiling = Compiling()
        event.register("numba:compile", self.compiling)
        compile_in_child._in_child = self.compiling.in_child(compile_in_child._in_child)
        self.last = self._now()
        self.by_test: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0, 0.0])

    def _now(self) -> list[float]:
        own, children = _seconds(resource.RUSAGE_SELF), _seconds_of_children()
        return [own + children, children, self.compiling.seconds]

    def since(self) -> list[float]:
        """CPU seconds since the last call: in all, of children, of compiling."""
        now, last = self._now(), self.last
        self.last = now
        return [after - before for after, before in zip(now, last, strict=True)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        report.user_properties.append(("cpu_seconds", self.since()))
        return report

    def pytest_collection_finish(self) -> None:
        self.since()  # of nobody's test

    def pytest_runtest_logreport(self, report: Any) -> None:
        for name, seconds in report.user_properties:
            if name == "cpu_seconds":
                sums = self.by_test[report.nodeid]
                sums[:] = [a + b for a, b in zip(sums, seconds, strict=True)]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        files: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0, 0.0, 0])
        for test, seconds in self.by_test.items():
            for name in (test.partition("::")[0], "all tests"):
                files[name] = [a + b for a, b in zip(files[name], [*seconds, 1], strict=True)]
        slowest = sorted(self.by_test.items(), key=lambda found: -found[1][0])[:_SLOWEST]
        slowest = [found for found in slowest if found[1][0] >= _WORTH_TELLING]
        terminalreporter.section("CPU seconds")
        terminalreporter.write_line("".join(f"{name:>10}" for name in COLUMNS))
        for table in (sorted(files.items(), key=lambda found: -found[1][0]), slowest):
            for name, sums in table:  # of files, of tests
                counts = "".join(f"{x:10.1f}" if n < 3 else f"{x:10.0f}" for n, x in enumerate(sums))
                terminalreporter.write_line(f"{counts}  {Path(name)}")
            terminalreporter.write_line("")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuSeconds(), "cpu-seconds-of-tests")
