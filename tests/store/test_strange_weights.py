"""Weights that are no numbers are told by their row, and in files by their column, too."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bigsvm
from bigsvm.errors import BigSVMError

X, Y = np.random.default_rng(0).standard_normal((20, 2)), np.arange(20) % 2


def given(form: str, weights: list[Any], folder: Path) -> Any:
    if form == "array":
        return X, Y, np.array(weights)
    if form == "objects":
        return X, Y, np.array(weights, dtype=object)
    if form == "list":
        return X, Y, weights
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": Y, "weight": weights})
    path = folder / f"rows.{form}"
    if form == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_feather(path) if form == "arrow" else frame.to_parquet(path)
    return path


@pytest.mark.parametrize("missing", ["refuse", "drop"])
@pytest.mark.parametrize("form", ["array", "objects", "list", "csv", "arrow", "parquet"])
@pytest.mark.parametrize(
    ("strange", "row", "shown"), [({7: "heavy"}, 7, "'heavy'"), ({4: "-", 9: "2 kg"}, 4, "'-'"), ({}, 0, "'1.5'")]
)
def test_text_among_weights_is_told_by_its_row(
    strange: dict[int, str], row: int, shown: str, form: str, missing: Any, tmp_path: Path
) -> None:
    """The first one that does not even read as a number; it was told as weights of type <U5."""
    source = given(form, [strange.get(k, "1.5") for k in range(20)], tmp_path)
    where = "sample_weight" if isinstance(source, tuple) else f"{source}, column 'weight'"
    if form == "csv" and not strange:  # text that reads as a number is one in a file of text
        assert bigsvm.open_store(source, missing=missing).has_weights
        return
    with pytest.raises(BigSVMError) as caught:
        bigsvm.fit(source, missing=missing)
    assert caught.value.where == where
    assert caught.value.what.startswith(f"the weight of row {row} is {shown}, which is not a number")
    assert caught.value.hint == "give finite numbers >= 0; rows are counted from 0"


@pytest.mark.parametrize("kind", [float, int, bool, Decimal, np.float32])
@pytest.mark.parametrize("form", ["objects", "list"])
def test_objects_that_are_numbers_are_weights(kind: Any, form: str, tmp_path: Path) -> None:
    """As they are features: arrays of Python objects were refused as weights."""
    rows = bigsvm.open_store(given(form, [kind(1 + k) for k in range(20)], tmp_path))
    (ref,) = rows.refs(20)
    np.testing.assert_array_equal(rows.read(ref).sample_weight, [float(kind(1 + k)) for k in range(20)])
    bigsvm.ingest(given(form, [kind(1 + k) for k in range(20)], tmp_path), tmp_path / "rows.zarr")


@pytest.mark.parametrize(
    ("weight", "said"),
    [(None, "is None, which is not a number"), (10**400, "is inf"), (float("nan"), "is nan"), (1j, "not a number")],
)
def test_other_objects_are_refused_by_their_row(weight: Any, said: str, tmp_path: Path) -> None:
    source = given("objects", [weight if k == 5 else 1.0 for k in range(20)], tmp_path)
    for read in (bigsvm.open_store, lambda rows: bigsvm.ingest(rows, tmp_path / "rows.zarr")):
        with pytest.raises(BigSVMError, match=f"weight of row 5 is.*{said.removeprefix('is ')}"):
            read(source)
