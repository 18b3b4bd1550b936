"""Kernel fits whose scores are made by tasks in other processes: the bytes are those of this process."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.compiled.kernel.values import step
from bigsvm.solvers.kernel.values import sent_rows
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.tasks import SerialMapper
from bigsvm.testing.problems import random_problem

N = 600


class Sending(SerialMapper):
    """As worker processes: tasks see copies of what they are sent, two shares ahead of what was taken."""

    in_process = False

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()

    def map(
        self, task: Callable[[Any], Any], shares: Iterable[Any], at_most: int | None = None
    ) -> Generator[Any, None, None]:
        waiting = []
        for share in shares:
            self.sent[task.__name__] += 1
            waiting.append(pickle.dumps(share))
            if len(waiting) > 2:
                yield pickle.loads(pickle.dumps(task(pickle.loads(waiting.pop(0)))))
        for share in waiting:
            yield pickle.loads(pickle.dumps(task(pickle.loads(share))))


@pytest.fixture
def many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in memory are several blocks; active sets are parts of the rows, as of a programme of many."""
    monkeypatch.setattr("bigsvm.solvers.kernel.values.data._CHUNK", 90)
    monkeypatch.setattr("bigsvm.solvers.kernel.smo.active_set._SMALL", 0)
    monkeypatch.setattr("bigsvm.solvers.kernel.values.row_buffer.LEAST_ROWS", N // 2)


def rows_of(kind: str) -> ArrayRows:
    classes = 3 if kind == "classes" else 2
    X, y = random_problem(N, 5, seed=77, noise=0.1, n_classes=classes)
    if kind == "precomputed":
        return ArrayRows(np.exp(-0.4 * ((X[:, None] - X[None]) ** 2).sum(axis=-1)), y)
    if kind == "whole":
        return ArrayRows(sparse.csr_array(np.tile(np.rint(100 * X) / 100, (1, 8))), y)
    return ArrayRows(sparse.csr_array(X) if kind == "sparse" else X, y)


def written(result: Any, path: Path) -> dict[str, bytes]:
    result.save_model(path, overwrite=True)
    return {p.name: p.read_bytes() for p in sorted(path.iterdir())}


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize(
    ("kind", "streams"),
    [
        ("dense", False),
        ("classes", False),
        ("precomputed", False),
        ("whole", False),
        ("sparse", True),
        ("classes", True),
    ],
)
def test_scores_by_tasks_are_those_of_this_process(
    kind: str, streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if streams:
        request.getfixturevalue("streaming")
    monkeypatch.setattr(step, "_WORTH_IT", 0)
    rows, options = rows_of(kind), {"kernel": "rbf", "gamma": 0.4, "C": 3.0, "tol": 1e-3}
    if kind == "precomputed":
        options = {"kernel": "precomputed", "C": 3.0}
    here = written(bigsvm.fit(rows, scheduler="serial", memory="64MiB", **options), tmp_path / "m")
    mapper = Sending()
    monkeypatch.setattr(sent_rows, "WORTH_SENDING", 0)
    monkeypatch.setattr("bigsvm.run.fit.fit.open_mapper", lambda *_: nullcontext(mapper))
    made, sent = sent_rows.SentValues, []
    monkeypatch.setattr(sent_rows, "SentValues", lambda *given: sent.append(given[-1]) or made(*given))
    there = written(bigsvm.fit(rows, memory="64MiB", **options), tmp_path / "m")
    # The bytes may be the same where a worker's values have other last digits.
    assert {steps is not None and steps.step > 0.0 for steps in sent} == {kind == "whole"}
    assert mapper.sent["score_block"] > 3
    assert mapper.sent["add_moved_rows"] > 3
    assert there == here
