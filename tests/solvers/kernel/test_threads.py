"""Threads of kernel values: they share the rows of every call that is worth it, and change no byte of a model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.compiled.kernel.values.support import support_of
from bigsvm.compiled.kernel.values.tile import LANES
from bigsvm.config import KERNEL_SOLVERS, KERNELS
from bigsvm.events import Event
from bigsvm.problem.kernel import Kernel
from bigsvm.run.fit import sizes
from bigsvm.solvers.kernel.values import gram
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import random_problem
from tests.products import pairs_of

SOLVERS = [*((name, {}) for name in KERNEL_SOLVERS), ("smo", {"working_set": 2})]
OF_KERNEL = {"rbf": {"gamma": 0.3}, "poly": {"gamma": 0.3, "coef0": 1.0}, "sigmoid": {"gamma": 0.05}}


@pytest.fixture
def shared_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call of more than a tile is shared, however small; gains the prefix of a pool for each."""
    monkeypatch.setattr(gram, "_WORTH_A_THREAD", 1)
    calls: list[str] = []

    class Counted(ThreadPoolExecutor):
        def submit(self, *given: Any, **named: Any) -> Any:
            calls.append(self._thread_name_prefix)
            return super().submit(*given, **named)

    monkeypatch.setattr(gram, "ThreadPoolExecutor", Counted)
    return calls


@pairs_of(solver__options=SOLVERS, kernel=KERNELS, stream=[False, True])
def test_the_bytes_of_one_thread(
    solver: str, options: dict[str, Any], kernel: str, stream: bool, shared_calls: list[str], tmp_path: Path,
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if stream:
        request.getfixturevalue("streaming")
        monkeypatch.setattr(sizes, "BLOCK_BYTES", 200_000)  # blocks of several tiles
    X, y = random_problem(3 * LANES + 7, 4, 0.6, seed=45)
    rows: Any = sparse.csr_array(X.astype(np.float32))
    if kernel == "precomputed":
        rows = X @ X.T
    found = []
    for threads in (1, 2, 3):
        given = {"threads": threads, "kernel": kernel, **OF_KERNEL.get(kernel, {}), **options}
        result = bigsvm.fit((rows, y), solver=solver, tol=1e-2, max_passes=30, **given)
        result.save_model(tmp_path / str(threads))
        found.append({p.name: p.read_bytes() for p in sorted((tmp_path / str(threads)).iterdir())})
        assert bool(shared_calls) == (threads > 1)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("solver", ["smo", "rosen"])
def test_a_fit_that_is_interrupted_leaves_no_thread(
    solver: str, monkeypatch: pytest.MonkeyPatch, started_and_alive: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr(gram, "_WORTH_A_THREAD", 1)
    rng, during = np.random.default_rng(4), list[str]()
    X = rng.standard_normal((300, 4))

    def interrupt(event: Event) -> None:
        during.extend(name for name in started_and_alive() if "kernel" in name)
        if during:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bigsvm.fit((X, np.sign(X[:, 0] * X[:, 1])), solver=solver, kernel="rbf", threads=2, emit=interrupt)
    assert during
    assert started_and_alive() == []


def test_threads_are_woken_by_shape() -> None:
    """One kernel row of few features is not worth it; many, or rows of many features, are."""
    rng = np.random.default_rng(3)
    woken = []
    for n, d, others in ((2000, 10, 1), (2000, 10, 1000), (2000, 3000, 1), (LANES, 3000, 500)):
        X = readonly_view(rng.standard_normal((n, d)))
        two = gram.Gram(Kernel("rbf", 0.1), d, np.float64, 2)
        two.values(X, np.arange(n), support_of(X, np.arange(min(others, n)), np.float64))
        assert two._pool is not None
        woken.append(bool(two._pool._threads))
        two.close()
    assert woken == [False, True, True, False]  # a tile is never cut


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_thread_that_fails_leaves_nobody_writing(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of whichever thread comes out, after all others have stopped."""
    monkeypatch.setattr(gram, "_WORTH_A_THREAD", 1)
    X = readonly_view(np.random.default_rng(3).standard_normal((40 * LANES, 3)))
    two = gram.Gram(Kernel("rbf", 0.1), 3, np.float64, 2)
    main, both, at_work = threading.current_thread(), threading.Barrier(2, timeout=60), []

    def fail(*_: Any) -> None:
        here = threading.current_thread() is main
        if len(at_work) < 2:  # each has begun one part
            at_work.append(here)
            both.wait()
        if here == (where == "here"):
            raise ValueError("of one thread")

    monkeypatch.setattr(gram, "write_kernel_rows", fail)
    with pytest.raises(ValueError, match="of one thread"):
        two.values(X, np.arange(len(X)), support_of(X, np.arange(9), np.float64))
    assert sorted(at_work) == [False, True]
    two.close()
