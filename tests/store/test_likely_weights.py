"""A column that by its name holds the weights of rows, and becomes a feature, is told by whatever reads columns."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import bigsvm
from bigsvm.events import Warned
from bigsvm.sklearn import LinearSVC
from tests.cli.conftest import Bigsvm
from tests.cli.conftest import bigsvm as command

__all__ = ["command"]

NAMES = ("sample_weight", "sample_weights", "weight", "heft")
FILES = ("csv", "tsv", "feather", "parquet")
FRAMES = ("pandas", "polars", "arrow", "dask")


def frame(name: str) -> pd.DataFrame:
    return pd.DataFrame({"a": [0.0, 1.0] * 4, name: [1.0, 2.0, 3.0, 4.0] * 2, "label": [0, 1] * 4})


def written(folder: Path, form: str, name: str) -> Path:
    path, rows = folder / f"{name}.{form}", frame(name)
    text = {"csv": ",", "tsv": "\t"}
    {
        **{kind: functools.partial(rows.to_csv, index=False, sep=mark) for kind, mark in text.items()},
        "feather": rows.to_feather,
        "parquet": rows.to_parquet,
    }[form](path)
    return path


def framed(form: str, name: str) -> tuple[Any, Any]:
    """(columns of features, labels)"""
    rows = frame(name)
    X, y = rows.drop(columns="label"), rows["label"].to_numpy()
    if form == "polars":
        return pytest.importorskip("polars").DataFrame({column: X[column].to_numpy() for column in X}), y
    if form == "dask":
        of_pandas = functools.partial(pytest.importorskip("dask.dataframe").from_pandas, npartitions=2)
        return of_pandas(X), of_pandas(rows["label"])
    return (pa.Table.from_pandas(X, preserve_index=False) if form == "arrow" else X), y


def told(run: Callable[[Any], Any]) -> list[str]:
    """The warnings about features, as events or as Python's warnings."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(lambda event: said.append(event.message) if isinstance(event, Warned) else None)
    return [text for text in (*said, *(str(one.message) for one in caught)) if "read as a feature" in text]


def begins(name: str) -> str:
    return f"column {name!r} is read as a feature: where it holds the weights of rows, "


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FILES)
def test_files(form: str, name: str, tmp_path: Path) -> None:
    """Of `weight` and `sample_weight` only the first is taken for weights; the other was a feature in silence."""
    path, likely = written(tmp_path, form, name), name.startswith("sample")
    expected = [f"{begins(name)}name it with weight={name!r}"] * likely
    features = {"weight": 1}.get(name, 2)
    for more in ({}, {"columns": ("*",)}):
        store = bigsvm.open_store(path, **more)
        assert (store.warnings, store.n_features) == (expected, features)
    assert told(lambda emit: bigsvm.ingest(path, tmp_path / "rows.zarr", emit=emit)) == expected
    assert bigsvm.open_store(path, weight=name).warnings == []
    assert bigsvm.open_store(path, columns=("a", name)).warnings == []  # who names it means it
    assert bigsvm.open_store(path, columns=("a",)).warnings == []
    read_for_a_model = bigsvm.open_store(path, labelled=False, like={**store.recipe, "features": ["a", name]})
    assert read_for_a_model.warnings == []


def test_the_option_is_spelled_as_it_is_typed(tmp_path: Path, command: Bigsvm) -> None:
    done = command("inspect", str(written(tmp_path, "csv", "sample_weight")), "--json")
    assert done.document["warnings"] == [f"{begins('sample_weight')}name it with --weight 'sample_weight'"]


@pytest.mark.parametrize("name", NAMES)
def test_text_without_a_header(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    frame(name).to_csv(path, index=False, header=False)
    expected = [f"{begins(name)}name it with weight={name!r}"] * name.startswith("sample")
    assert bigsvm.open_store(path, columns=("a", name, "label")).warnings == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FRAMES)
def test_frames(form: str, name: str, tmp_path: Path) -> None:
    """All columns of a frame beside labels are features, with scikit-learn too."""
    X, y = framed(form, name)
    expected = [f"{begins(name)}leave it out of X, and give the weights as sample_weight"] * name.startswith("sample")
    if form != "dask":
        assert list(bigsvm.open_store((X, y)).warnings) == expected
        assert told(lambda emit: bigsvm.ingest((X, y), tmp_path / "rows.zarr", emit=emit)) == expected
    assert told(lambda _: LinearSVC(tol=0.1).fit(X, y)) == expected
    without = X.drop_columns([name]) if form == "arrow" else X[["a"]]
    given = frame(name)[name].to_numpy()
    assert told(lambda _: LinearSVC(tol=0.1).fit(without, y, sample_weight=given)) == []


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_dask(name: str, tmp_path: Path) -> None:
    pytest.importorskip("dask.dataframe")
    X, y = framed("dask", name)
    whole, out = X.assign(label=y), tmp_path / "rows.zarr"
    expected = [f"{begins(name)}name it with weight={name!r}"] * name.startswith("sample")
    assert told(lambda emit: bigsvm.ingest(whole, out, emit=emit)) == expected
    assert told(lambda emit: bigsvm.ingest(whole, out, append=True, emit=emit)) == []  # it was told
    for k, options in enumerate(({"weight": name}, {"columns": ("a", name)}, {"columns": ("a",)})):
        out = tmp_path / f"{k}.zarr"
        assert told(lambda emit, out=out, options=options: bigsvm.ingest(whole, out, emit=emit, **options)) == []
