"""Whole numbers as labels are targets for a regression loss, in every format and every command."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, UsageError
from bigsvm.run.start.targets import open_for
from bigsvm.store.transforms import scaled_rows
from tests.store.formats import anndata

_FORMATS = ("csv", "parquet", "h5ad", "h5ad categories", "svmlight, ingested")
_LOSS = ("--loss", "epsilon_insensitive", "-c", "0.1")


def _numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((120, 4)).round(3)
    return X, np.rint(3 + 2 * X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(120)).astype(np.int64)


def _written(kind: str, folder: Path) -> str:
    """The rows as a file of a format, or as a store that took the labels for classes."""
    X, y = _numbers()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(label=y)
    if kind.startswith("csv"):
        frame.to_csv(folder / "rows.csv", index=False)
        if kind == "csv":
            return str(folder / "rows.csv")
        bigsvm.ingest(str(folder / "rows.csv"), str(folder / "rows.zarr"))
    elif kind == "parquet":
        frame.to_parquet(folder / "rows.parquet")
    elif kind == "feather":
        frame.to_feather(folder / "rows.feather")
    elif kind.startswith("h5ad"):
        values, codes = np.unique(y, return_inverse=True)
        labels = (codes.astype(np.int8), values) if kind.endswith("categories") else y
        anndata(folder / "rows.h5ad", {"X": sp.csr_matrix(X), "obs/label": labels})
    else:
        lines = (f"{t} " + " ".join(f"{j + 1}:{x}" for j, x in enumerate(row)) for t, row in zip(y, X, strict=True))
        (folder / "rows.svm").write_text("\n".join(lines) + "\n")
        # float64, as the other formats have them: a fit, a path and a search are compiled for each type of rows.
        bigsvm.ingest(str(folder / "rows.svm"), str(folder / "rows.zarr"), dtype="float64")
    return str(next(path for path in folder.iterdir() if path.suffix in (".zarr", f".{kind.split()[0]}")))


def _ran(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict:
    capfd.readouterr()
    code = run([*arguments, "--json", "--quiet"])
    said = capfd.readouterr()
    assert code == 0, said.err
    return json.loads(said.out)["result"]


@pytest.mark.parametrize("kind", _FORMATS)
def test_each_command_reads_targets(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    X, y = _numbers()
    rows, model = _written(kind, tmp_path), str(tmp_path / "m")
    wanted = bigsvm.fit((X, y.astype(float)), loss="epsilon_insensitive", C=0.1, tol=1e-5).model
    assert _ran(capfd, "plan", rows, *_LOSS)["n_models"] == 1
    _ran(capfd, "fit", rows, *_LOSS, "-o", model, "--tol", "1e-5")
    found = bigsvm.load_model(model)
    assert found.regression
    np.testing.assert_allclose(found.coef, wanted.coef, atol=0.02)
    assert _ran(capfd, "certify", model, rows)["relative_gap"] <= 1e-5
    error = _ran(capfd, "evaluate", model, rows)["mse"]
    assert error == pytest.approx(np.mean((wanted.predict(X) - y) ** 2), rel=0.05)
    searched = _ran(capfd, "tune", rows, "--loss", "epsilon_insensitive", "--Cs", "0.01,0.1", "--folds", "3")
    assert searched["metric"] == "r2"
    assert len(bigsvm.fit_path(rows, [0.01, 0.1], loss="epsilon_insensitive")) == 2
    assert bigsvm.certify(model, rows)["relative_gap"] <= 1e-5


def test_integer_arrays_are_targets(tmp_path: Path) -> None:
    X, y = _numbers()
    by_integers = bigsvm.fit_path((X, y), [0.1], loss="epsilon_insensitive")[0].model
    by_floats = bigsvm.fit_path((X, y.astype(float)), [0.1], loss="epsilon_insensitive")[0].model
    np.testing.assert_array_equal(by_integers.coef, by_floats.coef)
    assert bigsvm.tune((X, y), Cs=[0.1], folds=3, loss="epsilon_insensitive").status == "converged"


@pytest.mark.parametrize("options", [{}, {"positive": "3"}, {"label": "text"}], ids=["opened", "positive", "text"])
def test_classes_that_are_no_targets_stay_refused(options: dict, tmp_path: Path) -> None:
    X, y = _numbers()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(label=y, text=y.astype(str) + "x")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    columns = {"columns": list("abcd"), **options}
    source = str(tmp_path / "rows.csv") if options else bigsvm.open_store(str(tmp_path / "rows.csv"), **columns)
    wanted = {"": 'task="regression"', "positive": "leave out positive and label_map", "label": "array of numbers as y"}
    with pytest.raises(DataError, match="needs targets and the store holds classes") as told:
        bigsvm.fit(source, loss="epsilon_insensitive", **(columns if options else {}))
    assert wanted["".join(options)] in str(told.value)


REMEDIES = {
    "text": (["--label", "text"], "name a column of numbers with --label"),
    "truth": (["--label", "truth"], "name a column of numbers with --label"),
    "positive": (["--positive", "3"], "leave out --positive and --label-map"),
    "label-map": (["--label-map", "3=x"], "leave out --positive and --label-map"),
    "labels": (["--labels", "truth,other"], "name a column of numbers with --label"),
}


@pytest.mark.parametrize(
    ("kind", "command"),
    [*itertools.product(REMEDIES, ["plan", "fit", "tune"]), ("text", "evaluate"), ("truth", "evaluate")],
)
def test_commands_name_what_a_shell_has(
    kind: str, command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    X, y = _numbers()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(label=y, text=y.astype(str) + "x", truth=y > 3)
    rows = str(tmp_path / "rows.parquet")
    frame.assign(other=y > 2).to_parquet(rows)
    columns, (options, remedy) = ["--columns", "a,b,c,d"], REMEDIES[kind]
    if command == "evaluate":
        _ran(capfd, "fit", rows, *_LOSS, *columns, "-o", str(tmp_path / "m"))
        code = run(["evaluate", str(tmp_path / "m"), rows, *options])
    else:
        out = ["-o", str(tmp_path / "m")] if command == "fit" else []
        code = run([command, rows, *_LOSS[: 2 if command == "tune" else 4], *columns, *options, *out])
    said = capfd.readouterr().err
    assert code == 65, said
    assert f"({remedy}" in said


def test_rows_with_targets_keep_their_identity(tmp_path: Path) -> None:
    """A store whose labels were targets before is not read again, and models certified on it stay valid."""
    X, y = _numbers()
    pd.DataFrame(X, columns=list("abcd")).assign(label=y + 0.5).to_csv(tmp_path / "rows.csv", index=False)
    source = str(tmp_path / "rows.csv")
    assert open_for(source, True).identity == bigsvm.open_store(source).identity
    assert open_for(source, False).identity == bigsvm.open_store(source).identity


@pytest.mark.parametrize("second", [0, 100])
def test_two_targets_a_row_are_refused_as_such(second: int) -> None:
    X, y = _numbers()
    with pytest.raises(UsageError, match="y has 2 columns, and a regression has one target a row"):
        bigsvm.fit(X, np.column_stack([y > 3, y + second > 3]).astype(int), loss="epsilon_insensitive")


@pytest.mark.parametrize("step", [0.0, 0.5])
@pytest.mark.parametrize("scale", ["maxabs", "standard"])
def test_scales_are_found_in_one_pass(
    scale: Literal["maxabs", "standard"], step: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = _numbers()
    pd.DataFrame(X, columns=list("abcd")).assign(label=y + step).to_parquet(tmp_path / "rows.parquet")
    asked: list[str] = []
    for name in ("_largest", "_standard"):
        found = getattr(scaled_rows, name)
        monkeypatch.setattr(scaled_rows, name, lambda rows, found=found: asked.append(rows.uri) or found(rows))
    rows = open_for(str(tmp_path / "rows.parquet"), True, scale=scale)
    assert rows.classes is None
    assert rows.recipe["scale"]["kind"] == scale
    assert len(asked) == 1
