"""A dask client of the user's own: tasks run on its workers, it stays open, and the bits are those of no cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from distributed import Client

import bigsvm
from bigsvm.errors import UsageError
from bigsvm.testing.problems import random_problem

OPTIONS: dict[str, Any] = {"solver": "newton-cg", "C": 10.0, "tol": 1e-6, "memory": "64MiB"}


@pytest.fixture
def client(cluster: str) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as found:
        yield found


@pytest.mark.cluster
def test_a_client_that_is_given_or_current_gives_the_bytes_of_none(streaming: None, client: Client) -> None:
    X, y = random_problem(200, 5, seed=13, n_classes=3)
    here = bigsvm.fit((X, y), threads=1, **OPTIONS)
    given = bigsvm.fit((X, y), client=client, **OPTIONS)
    with client.as_current():
        current = bigsvm.fit((X, y), scheduler="dask", **OPTIONS)
    for there in (given, current):
        np.testing.assert_array_equal(there.model.coef, here.model.coef)
        assert there.figures["dual_objective"] == here.figures["dual_objective"]
    assert client.submit(abs, -3).result() == 3  # it is the user's, and still open


@pytest.mark.cluster
def test_a_worker_with_another_version_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = random_problem(30, 3, seed=1)
    monkeypatch.setattr("bigsvm.run.execute.dask_checks.digest_of", lambda folder: "other sources")
    with pytest.raises(UsageError, match=r"has bigsvm \(its loops\) \w{12}, and this process other source"):
        bigsvm.fit((X, y), client=client)


def test_without_a_client_it_says_so() -> None:
    X, y = random_problem(30, 3, seed=1)
    with pytest.raises(UsageError, match="no dask client"):
        bigsvm.fit((X, y), scheduler="dask")


def test_a_client_and_another_scheduler_are_refused() -> None:
    X, y = random_problem(30, 3, seed=1)
    with pytest.raises(UsageError, match="two places"):
        bigsvm.fit((X, y), client=object(), scheduler="threads")
