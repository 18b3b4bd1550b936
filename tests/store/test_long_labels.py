"""Labels of text take what they take, and not as much as so many of the longest; prose is told from labels."""

from __future__ import annotations

import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import zarr

import bigsvm
from bigsvm.errors import DataError
from bigsvm.store.blocks import BlockRef
from bigsvm.store.formats.chosen import column_labels
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.sources import row_source
from bigsvm.units import MIB
from tests.products import each_of, pairs_of

N = 12_000
LONG = "q" * 20_000
FORMS = ["rows.parquet", "coded.parquet", "rows.csv", "rows.feather", "rows.zarr"]


def written(folder: Path, form: str, labels: list[str]) -> str:
    """One feature, which counts rows, and labels."""
    x, path = np.arange(len(labels), dtype=np.float64), folder / form
    if form.endswith(".zarr"):
        group = zarr.create_group(path, attributes={"encoding-type": "anndata"})
        group.create_array("X", data=x[:, None], chunks=(5000, 1))
        frame = group.create_group("obs", attributes={"encoding-type": "dataframe", "column-order": ["label"]})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zarr.errors.UnstableSpecificationWarning)
            frame.create_array("label", data=np.array(labels, np.dtypes.StringDType()), chunks=(5000,))
        return str(path)
    column = pa.array(labels)
    table = pa.table({"x": x, "label": column.dictionary_encode() if form.startswith("coded") else column})
    if form.endswith(".csv"):
        pyarrow.csv.write_csv(table, path)
    elif form.endswith(".feather"):
        pyarrow.feather.write_feather(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return str(path)


def labels_of(store: Any, y: np.ndarray) -> list[str]:
    """One object for each class, where an array of all labels would be as wide as the longest one."""
    names = store.classes.tolist()
    return [names[code] for code in y]


@each_of(form=FORMS, missing=["refuse", "drop"])
def test_one_long_label_is_held_once(form: str, missing: str, tmp_path: Path) -> None:
    labels = [LONG if row == 1000 else "ba"[row % 2] for row in range(N)]
    path = written(tmp_path, form, labels)
    options = {"empty_chunks": "zeros"} if form == "rows.zarr" else {}
    tracemalloc.start()
    try:
        store = open_store(path, missing=missing, **options)
        assert store.classes is not None
        assert store.classes.tolist() == ["a", "b", LONG]
        y = np.concatenate([store.read(ref).y for ref in store.refs(N // 2)])
        bigsvm.ingest(path, tmp_path / "out.zarr", memory="64MiB", **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert labels_of(store, y) == labels
    assert peak < 64 * MIB  # as wide as the longest, the labels of one block would take 480 MB
    again = open_store(tmp_path / "out.zarr")
    assert again.classes is not None
    assert labels_of(again, again.read(again.refs(N)[0]).y) == labels


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([f"sentence {row}" for row in range(N)], "more than 10000 classes"),
        ([f"{row % 500:04} " + LONG for row in range(1000)], "classes, with names of up to 20005 characters"),
    ],
)
def test_prose_is_no_label(labels: list[str], said: str, form: str, tmp_path: Path) -> None:
    path = written(tmp_path, form, labels)
    with pytest.raises(DataError, match=said) as refused:
        assert open_store(path, empty_chunks="zeros").classes is None
    assert "is this a label?" in str(refused.value.hint)


@pytest.mark.parametrize("rows", [None, "label == 'a'"])
@pytest.mark.parametrize("form", FORMS)
def test_a_text_that_ends_with_nul_is_refused(form: str, rows: str | None, tmp_path: Path) -> None:
    """NumPy leaves the NUL out: `a` and the other class were one."""
    path = written(tmp_path, form, ["a", "b", "a\0"])
    with pytest.raises(DataError, match=r"the text 'a\\x00' ends with the character NUL") as refused:
        assert open_store(path, empty_chunks="zeros", rows=rows).classes is None
    assert "label" in str(refused.value.where)


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("form", FORMS)
def test_parts_that_lack_classes_have_their_own(
    form: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels that come class after class, and then the other way around; appended to, too."""
    monkeypatch.setattr(row_source, "_PART_ROWS", rows)
    names = ["m", "b", "ccc", "a", "zz"]
    labels = [name for name in names for _ in range(9)] + names[::-1]
    path, out = written(tmp_path, form, labels), tmp_path / "out.zarr"
    options = {"empty_chunks": "zeros"} if form == "rows.zarr" else {}
    bigsvm.ingest(path, out, **options)
    bigsvm.ingest(path, out, append=True, **options)
    store = open_store(out)
    assert store.classes is not None
    assert store.classes.tolist() == sorted(names)
    assert labels_of(store, store.read(store.refs(200)[0]).y) == 2 * labels
    assert store.content["class_counts"] == [2 * labels.count(name) for name in sorted(names)]


@pairs_of(
    form=[form for form in FORMS if not form.endswith(".zarr")],
    missing=["refuse", "drop"],
    read_by=["read", "labels_between"],
)
def test_long_labels_of_a_block_are_coded_a_few_at_a_time(
    form: str, missing: str, read_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = [f"{row % 3} " + LONG for row in range(2000)]
    store: Any = open_store(written(tmp_path, form, labels), missing=missing)
    store = getattr(store, "below", store)  # where rows without a label are left out
    assert store.classes is not None
    held: list[int] = []
    whole = column_labels.joined

    def watched(columns: list[pa.Array]) -> pa.Array:
        held.append(sum(column.nbytes for column in columns[:-1]))
        return whole(columns)

    monkeypatch.setattr(column_labels, "joined", watched)
    for first, stop in [(0, 2000), (7, 1999), (1999, 2000)]:
        if read_by == "labels_between":
            y = store.labels_between(first, stop)
        else:
            y = store.read(BlockRef(first, stop, 0)).y
        assert labels_of(store, y) == labels[first:stop]
    assert max(held) <= MIB
