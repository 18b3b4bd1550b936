"""gamma='scale': scikit-learn's number, the same wherever rows are kept, and what the model says was used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, UsageError
from bigsvm.events import WorkAdvanced
from bigsvm.run.fit import gamma as module
from bigsvm.testing.problems import random_problem

RBF: dict[str, Any] = {"kernel": "rbf", "tol": 1e-2, "memory": "32MiB"}


def rows(layout: str) -> tuple[Any, np.ndarray]:
    X, y = random_problem(200, 4, seed=3)
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    return (X if layout == "dense" else sparse.csr_array(X)), y


def gamma_of(result: Any) -> float:
    return result.model.about["problem"]["kernel"]["gamma"]


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_fit_takes_the_number_of_its_rows_and_says_it(layout: str) -> None:
    X, y = rows(layout)
    dense = X if layout == "dense" else X.toarray()
    found = bigsvm.fit((X, y), gamma="scale", **RBF)
    number = gamma_of(found)
    assert number == pytest.approx(1.0 / (4 * dense.var()), rel=1e-12)
    by_number = bigsvm.fit((X, y), gamma=number, **RBF)
    np.testing.assert_array_equal(found.model.decision_function(dense), by_number.model.decision_function(dense))
    assert found.model.kernel.gamma == number
    assert found.identity.options["gamma"] == number


def test_rows_in_memory_in_a_working_copy_and_in_the_store_have_the_same_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows("csr")
    bigsvm.ingest((X, y), tmp_path / "rows.zarr")
    monkeypatch.setattr(module, "MIB", 700)  # several blocks
    read: list[WorkAdvanced] = []

    def emit(event: Any) -> None:
        if isinstance(event, WorkAdvanced) and event.what == "variance":
            read.append(event)

    in_memory = bigsvm.fit(tmp_path / "rows.zarr", gamma="scale", emit=emit, **RBF)
    assert len(read) > 3
    assert read[-1].done == 200
    store = bigsvm.open_store(tmp_path / "rows.zarr")
    assert module.scale_gamma(store) == gamma_of(in_memory)
    assert module.scale_gamma(bigsvm.open_store((X, y))) == gamma_of(in_memory)


def test_scaled_rows_have_their_own_variance(tmp_path: Path) -> None:
    X, y = rows("dense")
    found = bigsvm.fit((X, y), scale="maxabs", gamma="scale", **RBF)
    assert gamma_of(found) == pytest.approx(1.0 / (4 * (X / np.abs(X).max(axis=0)).var()), rel=1e-12)


def test_from_the_command_line_and_where_it_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = rows("dense")
    bigsvm.ingest((X, y), tmp_path / "rows.zarr")
    store, out = str(tmp_path / "rows.zarr"), str(tmp_path / "m")
    common = ["--kernel", "rbf", "--gamma", "scale", "--memory", "32MiB", "--quiet"]
    assert run(["plan", store, *common]) == 0
    assert run(["fit", store, *common, "--tol", "0.01", "-o", out]) == 0
    assert bigsvm.load_model(out).about["problem"]["kernel"]["gamma"] == pytest.approx(1.0 / (4 * X.var()), rel=1e-12)
    assert bigsvm.certify(out, store)["relative_gap"] <= 0.01
    monkeypatch.setattr(module, "scale_gamma", lambda *_: pytest.fail("nobody wants gamma"))
    assert bigsvm.fit((X, y), gamma="scale", memory="32MiB").model.kind == "linear"
    capsys.readouterr()
    assert run(["fit", store, "--kernel", "rbf", "--gamma", "Scale"]) == 2
    assert "neither 'auto' nor 'scale' nor a number" in capsys.readouterr().err


def test_nothing_that_varies_too_much_or_not_at_all() -> None:
    with pytest.raises(UsageError, match="auto, scale or a positive number"):
        bigsvm.fit(rows("dense"), gamma="large", **RBF)
    X, y = rows("dense")
    with pytest.raises(DataError, match="variance of X is beyond float64"):
        module.scale_gamma(bigsvm.open_store((X * 1e200, y)))
    assert module.scale_gamma(bigsvm.open_store((np.ones((4, 2)), [0, 1, 0, 1]))) == 1.0
