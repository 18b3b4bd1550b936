"""Rows that a condition on columns chooses: what is read of it, which rows it means, and that all stores agree."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import zarr

from bigsvm.errors import BigSVMError, DataError, UsageError
from bigsvm.store.content import ContentHash
from bigsvm.store.formats.opener import open_store
from bigsvm.store.transforms.expression import Column, parse
from bigsvm.testing.contracts import RowBlocksContract, dense
from tests.store import formats

pytest.importorskip("h5py")

N = 40
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 3))
KIND = np.array(["T", "B", "N", "K"])[np.arange(N) % 4]
GENES = np.where(np.arange(N) % 10 == 7, np.nan, np.arange(N) * 10.0)
DOUBLET = np.arange(N) % 3 == 0
CONDITION = "kind in (T, B) and n_genes > 100 and not doublet == true"
WANTED = np.isin(KIND, ["T", "B"]) & (np.nan_to_num(GENES) > 100) & ~DOUBLET
STORES = ["rows.zarr", "rows.h5ad", "rows.feather", "rows.csv", "lists.parquet"]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows in every kind of store that has columns; one label is missing, of a row that is not chosen."""
    place = tmp_path_factory.mktemp("filtered")
    codes = np.searchsorted(["B", "K", "N", "T"], KIND).astype(np.int8)
    holes = np.where(np.arange(N) == 2, -1, codes).astype(np.int8)
    content = {
        "X": X, "obs/label": (holes, ["B", "K", "N", "T"]), "obs/kind": KIND.tolist(), "obs/n_genes": GENES,
        "obs/doublet": DOUBLET,
    }  # fmt: skip
    for name in ("rows.zarr", "rows.h5ad"):
        formats.anndata(place / name, content)
    beside = {"kind": KIND.tolist(), "n_genes": pa.array(GENES, from_pandas=True), "doublet": DOUBLET}
    labels = [None if k == 2 else label for k, label in enumerate(KIND.tolist())]
    table = pa.table({**{f"f{j}": X[:, j] for j in range(3)}, "label": labels, **beside})
    pyarrow.feather.write_feather(table, place / "rows.feather")
    pyarrow.csv.write_csv(table, place / "rows.csv")
    lists = {"indices": [[0, 1, 2]] * N, "values": X.tolist(), "label": KIND.tolist()}
    pyarrow.parquet.write_table(pa.table({**lists, **beside}), place / "lists.parquet", row_group_size=7)
    return place


def opened(folder: Path, name: str, rows: str | None = CONDITION, **options):
    if name in ("rows.feather", "rows.csv"):
        options["columns"] = ("f0", "f1", "f2")
    return open_store(folder / name, rows=rows, **options)


@pytest.mark.parametrize("name", STORES)
def test_every_store_chooses_the_same_rows(folder: Path, name: str) -> None:
    store = opened(folder, name)
    again = pickle.loads(pickle.dumps(store))
    for rows in (store, again):
        found = np.concatenate([dense(rows.read(ref).X, 3) for ref in rows.refs(5)])
        np.testing.assert_allclose(found, X[WANTED], rtol=1e-12)
    assert store.classes.tolist() == ["B", "T"]  # those that occur in what was chosen
    labels = np.concatenate([store.classes[store.read(ref).y] for ref in store.refs(4)])
    assert labels.tolist() == KIND[WANTED].tolist()
    unknown = int((np.isnan(GENES) & np.isin(KIND, ["T", "B"]) & ~DOUBLET).sum())
    chosen = {"of": N, "chosen": int(WANTED.sum()), "unknown": unknown}
    assert unknown > 0
    assert {name: store.recipe["chosen"][name] for name in chosen} == chosen
    assert store.store_rows(0, store.n_samples).tolist() == np.flatnonzero(WANTED).tolist()
    digest = ContentHash()
    for ref in store.refs(6):
        block = store.read(ref)
        digest.add(dense(block.X, 3), store.classes[block.y], None, block.start)
    ours = ContentHash()
    ours.add(X[WANTED], KIND[WANTED], None, 0)
    assert digest.hexdigest() == ours.hexdigest()


@pytest.mark.parametrize("name", STORES)
def test_what_does_not_go_with_the_columns_is_refused(folder: Path, name: str) -> None:
    for condition, error in (
        ("n_genes > 'many'", UsageError), ("kind > 3", UsageError), ("doublet < true", UsageError),
        ("nobody == 1", DataError), ("n_genes > 1e9", DataError),
    ):  # fmt: skip
        with pytest.raises(error):
            opened(folder, name, condition)


def test_the_condition_is_part_of_whose_rows_they_are(folder: Path) -> None:
    digests = {opened(folder, "rows.zarr", rows).identity.digest for rows in (CONDITION, "kind == T", "kind in (T)")}
    assert len(digests | {open_store(folder / "rows.zarr", missing="drop").identity.digest}) == 4
    spaced = opened(folder, "rows.zarr", "kind   ==  'T'").identity
    assert spaced == opened(folder, "rows.zarr", "kind == T").identity


def test_labels_count_of_the_chosen_rows_alone(folder: Path) -> None:
    with pytest.raises(DataError, match="1 of the chosen rows have no label, row 2 is the first"):
        opened(folder, "rows.zarr", "kind == N")
    assert opened(folder, "rows.zarr", "kind == N", missing="drop").n_samples == N // 4 - 1
    assert opened(folder, "rows.zarr", "label is not null").n_samples == N - 1
    assert opened(folder, "rows.zarr", "kind == N", labelled=False).n_samples == N // 4


def test_rows_without_columns_are_refused() -> None:
    with pytest.raises(UsageError, match="--rows is for rows with columns"):
        open_store((X, DOUBLET), rows="a > 1")


class TestContract(RowBlocksContract):
    """What every store promises holds of rows that were chosen, too; errors name them by their number in the store."""

    names_given_rows = False

    def make(self, X, labels, weights, folder):
        twice = np.repeat(np.arange(len(X)), 2)
        weight = None if weights is None else weights[twice]
        place = formats.foreign(folder / "rows.zarr", X[twice], labels[twice], weight)
        keep = np.tile([1, 0], len(X))
        zarr.open_group(place)["obs"].create_array("keep", data=keep)
        return open_store(place, rows="keep == 1")


# --- the condition itself


def chosen(condition: str, **columns) -> tuple[list[int], list[int]]:
    parts = {}
    for name, (fill, values) in columns.items():
        there = [value is not None for value in values]
        parts[name] = Column(np.array([fill if value is None else value for value in values]), np.array(there))
    found = parse(condition).of(parts)
    return np.flatnonzero(found.true).tolist(), np.flatnonzero(found.unknown).tolist()


NUMBERS = {"a": (0, [1, 2, None, 4]), "b": (0.0, [1.5, None, 3.5, np.nan]), "c": ("", ["x", "it's", None, "null"])}


@pytest.mark.parametrize(
    ("condition", "true", "unknown"),
    [
        ("a > 1", [1, 3], [2]),
        ("not a > 1", [0], [2]),
        ("not not a > 1", [1, 3], [2]),
        ("a > 1 and b > 1", [], [1, 2, 3]),
        ("a > 1 and b > 1 or a == 1", [0], [1, 2, 3]),
        ("a > 1 or b > 1", [0, 1, 2, 3], []),
        ("a == 1 and b > 1", [0], [2]),
        ("a is null or b is null", [1, 2, 3], []),
        ("a in (1, 4.0)", [0, 3], [2]),
        ("a NOT IN (1, 4)", [1], [2]),
        ("c == 'it''s'", [1], [2]),
        ("c in (\"x\", 'null')", [0, 3], [2]),
        ("c is not null", [0, 1, 3], []),
        ("(((a = 1))) or `c` != x", [0, 1, 3], [2]),
        ("b >= -1e3", [0, 2], [1, 3]),
    ],
)
def test_conditions(condition: str, true: list[int], unknown: list[int]) -> None:
    assert chosen(condition, **NUMBERS) == (true, unknown)
    assert chosen(str(parse(condition)), **NUMBERS) == (true, unknown)  # as it is recorded


@pytest.mark.parametrize(
    "condition",
    ["", "a", "a >", "a > > 1", "a in", "a in ()", "a in (1", "(a > 1", "a > 1)", "a > 1 b > 2", "and a > 1", "a is 3",
     "__import__('os')", "a == 1; b", "a > 1 & b > 2", "'a' == 1", "a == 'x", "not", "(" * 60 + "a > 1" + ")" * 60],
)  # fmt: skip
def test_what_is_no_condition_is_refused(condition: str) -> None:
    with pytest.raises(UsageError, match="condition") as error:
        parse(condition)
    assert isinstance(error.value, BigSVMError)
    assert error.value.hint


def test_ten_thousand_terms_are_one_condition_and_a_refusal_is_one_short_line(folder: Path) -> None:
    many = " or ".join(f"n_genes == {k}" for k in range(10, 100_000, 10))
    store = opened(folder, "rows.zarr", f"({many}) and not kind == N")
    wanted = (np.nan_to_num(GENES) >= 10) & (KIND != "N")
    assert store.store_rows(0, store.n_samples).tolist() == np.flatnonzero(wanted).tolist()
    assert pickle.loads(pickle.dumps(store)).n_samples == store.n_samples
    assert str(parse(str(parse(many)))) == str(parse(many))
    for wrong in (many.replace(" == ", " == 5"), f"{many} or", f"{many} ;"):
        with pytest.raises(BigSVMError) as refused:
            opened(folder, "rows.zarr", wrong)
        assert len(str(refused.value)) < 500


def test_a_column_that_nothing_compares_is_named(tmp_path: Path) -> None:
    lists = {"indices": [[0, 1, 2]] * N, "values": X.tolist(), "label": KIND.tolist()}
    pyarrow.parquet.write_table(pa.table({**lists, "day": pa.array(range(N), pa.date32())}), tmp_path / "days.parquet")
    with pytest.raises(DataError, match=r"column .day. is of type date32.*conditions and labels are of numbers"):
        open_store(tmp_path / "days.parquet", rows="day > 3")
