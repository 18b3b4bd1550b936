"""Columns of different scale are warned of, by their names, and ordinary columns are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.events import Warned
from bigsvm.run.fit import scales
from tests.cli.conftest import Bigsvm
from tests.cli.conftest import bigsvm as command
from tests.run.counted_fits import fit, unscaled

__all__ = ["command"]


def warnings_of(rows: Any, **options: Any) -> list[str]:
    few: dict[str, Any] = {"loss": "hinge", "max_passes": 3, **options}
    return [text for text in fit(rows, **few).warnings if "badly scaled" in text]


@pytest.mark.parametrize("stored", [False, True])
def test_coordinate_descent_alone_warns_of_smaller_differences(stored: bool, tmp_path: Path) -> None:
    """Where no other method can take over; of many features rare ones do no harm."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (60, 4)) * np.array([1.0, 1.0, 50.0, 1.0])
    rows: Any = (X, X[:, 0] + X[:, 2])
    if stored:
        bigsvm.ingest(rows, tmp_path / "s.zarr", task="regression")
        rows = tmp_path / "s.zarr"
    few = {"max_passes": 3, "loss": "epsilon_insensitive"}
    assert not any("scale=" in text for text in fit(rows, **few).warnings)  # the interior-point method would help
    few |= {"solver": "dcd", "solver_options": {"interior_after": -1}}
    (said,) = [text for text in fit(rows, **few).warnings if 'scale="maxabs"' in text]
    assert "columns differ in scale by 5" in said
    assert "dual coordinate descent" in said
    assert not any("scale=" in text for text in fit(rows, max_passes=3, loss="squared_epsilon_insensitive").warnings)


@pytest.mark.parametrize("stored", [False, True])
def test_badly_scaled_columns_go_by_their_names_where_they_have_names(stored: bool, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 6)) * np.array([1.0, 1e6, 1.0, 1.0, 1.0, 1.0])
    lines = [",".join([*map(str, row), str(k % 2)]) for k, row in enumerate(rows)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["age,income,c,d,e,f,y", *lines]))
    if stored:
        bigsvm.ingest(path, tmp_path / "s.zarr", label="y")
        (said,) = warnings_of(tmp_path / "s.zarr")
    else:
        (said,) = warnings_of(path, label="y")
    assert "such as 'income'; scale" in said


def test_badly_scaled_columns_are_warned_of_before_training() -> None:
    (said,) = warnings_of(unscaled())
    for word in ("4, 5, 6", "[-1, 1]", "differ in scale by"):
        assert word in said
    (of_sparse,) = warnings_of((sp.csr_matrix(unscaled()[0]), unscaled()[1]))
    assert of_sparse == said
    assert warnings_of(unscaled(), memory="12MiB", solver="dcd") == [said]


SLOW: dict[str, tuple[dict[str, Any], int, bool]] = {
    "tube": ({}, 6, False),
    "tube, dcd by name": ({"solver": "dcd"}, 6, False),
    "tube, bias": ({"bias": "none"}, 6, False),
    "tube, sweeps alone": ({"solver": "dcd", "solver_options": {"interior_after": -1}}, 6, True),
    "tube, random order": ({"solver": "dcd", "solver_options": {"order": "random"}}, 6, True),
    "tube, many features": ({}, 501, True),
    "tube, shards": ({"solver": "dcd", "shards": 2}, 6, True),
    "tube, rows stream": ({"memory": "64MiB"}, 6, True),
    "squared tube": ({"loss": "squared_epsilon_insensitive"}, 6, False),
    "squared tube, sweeps": ({"loss": "squared_epsilon_insensitive", "solver": "dcd"}, 6, True),
    "squared classes": ({"loss": "squared_hinge"}, 6, False),
    "classes": ({"loss": "hinge"}, 6, True),
}


@pytest.mark.parametrize("layout", ["dense", "sparse", "stored"])
@pytest.mark.parametrize("kind", SLOW)
def test_slow_training_is_told_of_where_it_is_slow(
    kind: str, layout: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Not where an interior-point or a Newton method solves the problem in a few iterations whatever the scales are."""
    options, width, slow = SLOW[kind]
    if "stream" in kind:
        request.getfixturevalue("streaming")
    X = np.random.default_rng(3).uniform(-1.0, 1.0, (60, width)).astype(np.float32)
    X[:, 1] *= 1e5
    y = (X[:, 0] > 0) if "classes" in kind else X[:, 0] + 1e-5 * X[:, 1]
    rows: Any = (X if layout == "dense" else sp.csr_matrix(X), y)
    if layout == "stored":
        said = bigsvm.ingest(rows, tmp_path / "s.zarr", task="classification" if "classes" in kind else "regression")[
            "warnings"
        ]
        assert ["or training may be slow" in text for text in said] == [True]
        rows = tmp_path / "s.zarr"
    options = {"loss": "epsilon_insensitive", "tol": 1e-2, "max_passes": 400 if not slow else 1, **options}
    done = bigsvm.fit(rows, **options)
    assert ["or training will be slow" in text for text in done.warnings if "scale" in text] == [True] * slow
    if not slow:
        assert done.status == "converged"
        assert done.figures["epochs"] <= 150


def test_ordinary_columns_are_not_warned_of() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    pictures = rng.integers(0, 256, (200, 30)).astype(np.float32)
    pictures[:, 3] = np.arange(200) == 7  # a pixel that is hardly ever touched
    assert warnings_of((pictures, y)) == []
    assert warnings_of((rng.standard_normal((200, 5)) * [1e-2, 1, 1, 10, 100], y)) == []
    assert warnings_of((sp.random(200, 1000, 0.05, "csr", random_state=0), y)) == []
    assert warnings_of((np.full((200, 200), 1e6) * np.eye(200), y), kernel="precomputed") == []


@pytest.mark.parametrize("kind", ["dense", "sparse", "stored"])
def test_long_rows_are_warned_of_where_training_takes_long(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C |x|^2 counts, not the scale of the features alone; of small data, and of kernels, nothing is said."""
    rng = np.random.default_rng(1)
    X = rng.integers(1, 256, (60, 6)).astype(np.float32)
    y = (X[:, 0] > 128.0).astype(int)
    given: dict[float, Any] = {}
    for size in (1.0, 255.0):
        rows: Any = (X / np.float32(size), y)
        if kind == "sparse":
            rows = (sp.csr_matrix(rows[0]), y)
        elif kind == "stored":
            bigsvm.ingest(rows, tmp_path / f"{size}.zarr")
            rows = tmp_path / f"{size}.zarr"
        given[size] = rows

    def said(size: float, **options: Any) -> list[str]:
        few: dict[str, Any] = {"max_passes": 1, **options}
        return [text for text in fit(given[size], **few).warnings if "long" in text]

    assert said(1.0) == []  # it takes no time
    monkeypatch.setattr(scales, "_MUCH", 1e3)
    (text,) = said(1.0)
    assert text.startswith("rows are long for C = 1: C |x|^2 is about 1e+05, and would be about 2e+00 with")
    assert 'scale="maxabs"' in text
    (scaled,) = said(255.0, C=1e5)
    assert scaled.endswith("as long; lower C")
    for solver in ("dcd", "newton"):
        assert said(1.0, solver=solver, loss="squared_hinge") == [text]
    (text,) = said(255.0, C=255.0**2)
    assert "C |x|^2 is about 1e+05" in text
    assert said(255.0) == said(1.0, C=1e-3) == said(1.0, scale="maxabs") == said(1.0, kernel="rbf") == []
    assert said(1.0, loss="nu_svc", nu=0.2, kernel="linear", max_passes=100) == []


@pytest.mark.parametrize("form", ["stored", "csv", "scaled"])
@pytest.mark.parametrize("kind", ["long", "unscaled", "ordinary"])
def test_plan_warns_as_fit_does_or_says_that_fit_will(
    kind: str, form: str, command: Bigsvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who asks `plan` before the night heard nothing of what makes the night too short."""
    monkeypatch.setattr(scales, "_MUCH", 1e3)
    X = np.random.default_rng(1).uniform(1.0, 2.0, (60, 6)).astype(np.float32)
    X *= 255.0 if kind == "long" else 1.0
    X[:, 1] *= 1e5 if kind == "unscaled" else 1.0
    y = (X[:, 0] > np.median(X[:, 0])).astype(int)
    if form == "csv":
        path = tmp_path / "rows.csv"
        np.savetxt(path, np.column_stack([X, y]), delimiter=",", header="a,b,c,d,e,f,label", comments="")
    else:
        path = tmp_path / "rows.zarr"
        bigsvm.ingest((X, y), path)
    options = ["--gamma", "2", "--loss", "hinge", *(["--scale", "maxabs"] if form == "scaled" else [])]
    planned = command("plan", str(path), *options, "--json").document
    fitted = command(
        "fit", str(path), *options, "--max-passes", "1", "--allow-unconverged", "-o", str(tmp_path / "m"), "--json"
    ).document
    about = [text for text in fitted["warnings"] if "scale" in text or "has no effect" in text]
    assert len(about) == 1 + (kind != "ordinary" and form != "scaled")
    assert planned["result"]["scales_known"] == (form == "stored")
    assert planned["warnings"] == (about if form == "stored" else about[:1])
    shown = command("plan", str(path), *options).out
    assert ("fit looks at them" in shown) == (form != "stored")


@pytest.mark.parametrize("by", ["tune", "fit_path"])
@pytest.mark.parametrize("form", ["dense", "stored"])
def test_of_several_C_each_warning_is_given_once(
    form: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are trained one after another, each fit warns of its own C."""
    monkeypatch.setattr(scales, "_MUCH", 1e3)
    X = np.random.default_rng(1).integers(1, 256, (60, 6)).astype(np.float32)
    rows: Any = (X, (X[:, 0] > 128.0).astype(int))
    if form == "stored":
        bigsvm.ingest(rows, tmp_path / "s.zarr")
        rows = tmp_path / "s.zarr"
    told: list[str] = []
    options: dict[str, Any] = {"solver": "newton-cg", "loss": "squared_hinge", "tol": 0.5}
    options["emit"] = lambda event: told.append(event.message) if isinstance(event, Warned) else None
    if by == "tune":
        kept = [bigsvm.tune(rows, Cs=[1.0, 10.0, 100.0], folds=2, **options).warnings]
    else:
        kept = [result.warnings for result in bigsvm.fit_path(rows, [1.0, 10.0, 100.0], **options)]
    for warnings in (told, *kept):
        assert ["rows are long for C = " in text for text in warnings].count(True) == 1
