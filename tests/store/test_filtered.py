"""Rows that a condition on columns chooses: what is read of it, which rows it means, and that all stores agree."""

from __future__ import annotations

import copy
import itertools
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
from bigsvm.store.blocks import BlockRef
from bigsvm.store.content import ContentHash
from bigsvm.store.formats import kept_rows
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
    lists = {"indices": [[0, 1, 2]] * N, "values": X.tolist(), "label": labels}
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
def test_rows_chosen_in_several_ways_at_one_time_are_each_their_own(folder: Path, name: str) -> None:
    """Also where a worker opens them, which keeps what it has opened, for whoever comes next."""
    ways = {CONDITION: WANTED, "kind in (K, T)": np.isin(KIND, ["K", "T"]), None: np.arange(N) != 2}
    stores = {rows: opened(folder, name, rows, missing="drop" if rows is None else "refuse") for rows in ways}
    sent = {rows: pickle.dumps(store) for rows, store in stores.items()}
    for order in itertools.permutations(ways):
        received = {rows: pickle.loads(sent[rows]) for rows in order}
        for rows, mine in ways.items():
            for store in (stores[rows], received[rows], copy.copy(stores[rows])):
                labels = np.concatenate([store.classes[store.read(ref).y] for ref in store.refs(4)])
                assert labels.tolist() == KIND[mine].tolist()


@pytest.mark.parametrize("name", STORES)
def test_rows_far_apart_are_looked_up_in_parts(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and columns of few rows of many: not all rows between the first and the last are held at one time."""
    ends = "n_genes in (10, 390)"
    store = opened(folder, name, ends)
    whole = store.labels_between(0, 2), store.columns_between(["kind", "n_genes"], 0, 2)
    monkeypatch.setattr(kept_rows, "_STEP", 8)
    store = opened(folder, name, ends)
    asked: list[int] = []

    def watched(read, rows):
        def called(*args):
            asked.append(args[rows + 1] - args[rows])
            return read(*args)

        return called

    for method, rows in (("labels_between", 0), ("columns_between", 1)):
        monkeypatch.setattr(store.below, method, watched(getattr(store.below, method), rows))
    np.testing.assert_array_equal(store.labels_between(0, 2), whole[0])
    found = store.columns_between(["kind", "n_genes"], 0, 2)
    for column, parts in whole[1].items():
        for ours, theirs in zip(found[column], parts, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert asked == [1, 1, 1, 1]


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
     "__import__('os')", "a == 1; b", "a > 1 & b > 2", "'a' == 1", "a == 'x", "not", "a == '\udcff'",
     "a in (b, '\udcff')", "(" * 60 + "a > 1" + ")" * 60],
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


BAD_WEIGHTS = {"negative": -1.0, "not a number": np.nan, "none": None}


@pytest.mark.parametrize("bad", BAD_WEIGHTS)
@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.csv", "t.zarr"])
def test_labels_and_weights_of_rows_that_are_left_out_are_nobodys_matter(name: str, bad: str, tmp_path: Path) -> None:
    """Row 1 has no label, row 4 no weight: each by itself is left out, or named."""
    labels, weights = [1.0, None, 0.0, 1.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0, BAD_WEIGHTS[bad], 6.0]
    group = ["a", "x", "a", "b", "y", "b"]
    path, values = tmp_path / name, np.arange(12.0).reshape(6, 2)
    given = {"columns": ("f0", "f1")} if name in ("t.csv", "t.feather") else {}
    if name == "t.zarr":
        columns = {f"obs/{part}": np.array(found, float) for part, found in (("label", labels), ("weight", weights))}
        formats.anndata(path, {"X": values, "obs/g": group, **columns})
    else:
        features = {"f0": values[:, 0], "f1": values[:, 1]}
        if name == "t.parquet":  # where a column of text could be no feature; and a label that is NaN is none, too
            features = {"indices": [[0, 1]] * 6, "values": values.tolist()}
            labels = np.array(labels, float)
        table = pa.table({**features, "weight": weights, "g": group, "label": labels})
        write = {"t.parquet": pyarrow.parquet.write_table, "t.feather": pyarrow.feather.write_feather}
        write.get(name, pyarrow.csv.write_csv)(table, path)

    chosen = open_store(path, rows="g in (a, b)", **given)
    block = chosen.read(chosen.refs(4)[0])
    np.testing.assert_array_equal(dense(block.X, 2), values[[0, 2, 3, 5]])
    assert chosen.classes is not None
    assert chosen.classes[block.y].tolist() == [1, 0, 1, 1]
    assert block.sample_weight is not None
    assert block.sample_weight.tolist() == [1.0, 3.0, 4.0, 6.0]
    with pytest.raises(DataError, match="1 of the chosen rows have no label, row 1 is the first"):
        open_store(path, rows="g in (a, x)", **given)
    found = open_store(path, rows="g in (a, x)", missing="drop", **given)
    assert found.n_samples == 2
    one_by_one = open_store(open_store(path, missing="drop", **given), rows="g in (a, x)")
    assert one_by_one.classes is not None
    assert found.classes is not None
    both = [(made.classes[block.y], block.X) for made in (found, one_by_one) for block in [made.read(made.refs(9)[0])]]
    np.testing.assert_array_equal(both[0][0], both[1][0])
    np.testing.assert_array_equal(dense(both[0][1], 2), dense(both[1][1], 2))
    named = open_store(path, rows="g in (a, y)", **given)
    with pytest.raises(DataError, match=r"weight of row 4 is (-1\.0|nan)"):
        named.read(named.refs(9)[0])

    kept = open_store(path, missing="drop", **given)
    assert kept.n_samples == 5
    with pytest.raises(DataError, match=r"weight of row 4 is (-1\.0|nan)"):
        kept.read(kept.refs(9)[0])
    with pytest.raises(DataError, match=r"label|null"):
        open_store(path, **given).read(BlockRef(0, 6, 0))


def test_a_store_whose_rows_all_have_labels_is_itself_whatever_is_asked(tmp_path: Path) -> None:
    """Else its weights would be nobody's matter."""
    table = pa.table({"f0": [1.0, 2.0], "label": [0, 1], "weight": [1.0, -1.0]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    store = open_store(tmp_path / "t.parquet", missing="drop")
    assert "missing" not in dict(store.identity.selection)
    with pytest.raises(DataError, match=r"weight of row 1 is -1\.0"):
        pickle.loads(pickle.dumps(store)).read(store.refs(2)[0])


@pytest.mark.parametrize("odd", [[np.inf, -np.inf], [2.5, 0.1], ["none", "NO"], list(range(10_001))])
@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.csv", "t.zarr", "t.h5ad"])
def test_what_classes_there_are_is_told_by_the_chosen_rows(name: str, odd: list, tmp_path: Path) -> None:
    """Labels of the others are infinite, or targets, or no numbers, or too many to be classes."""
    labels, keep = [1.0, *odd, 0.0, 1.0], [1, *[0] * len(odd), 1, 1]
    path, n = tmp_path / name, len(keep)
    if isinstance(odd[0], str) and name != "t.csv":  # where columns have types, labels of one are all of one
        labels = [1.0, np.nan, np.nan, 0.0, 1.0]
    given = {"columns": ("f0", "f1")} if name in ("t.csv", "t.feather") else {}
    if name in ("t.zarr", "t.h5ad"):
        formats.anndata(path, {"X": np.ones((n, 2)), "obs/keep": np.array(keep), "obs/label": np.array(labels)})
    else:
        table = pa.table({"f0": np.ones(n), "f1": np.ones(n), "keep": keep, "label": list(map(str, labels))})
        if name != "t.csv":
            table = table.set_column(3, "label", pa.array(labels))
        write = {"t.parquet": pyarrow.parquet.write_table, "t.feather": pyarrow.feather.write_feather}
        write.get(name, pyarrow.csv.write_csv)(table, path)

    chosen = open_store(path, rows="keep == 1", **given)
    for store in (chosen, pickle.loads(pickle.dumps(chosen))):
        block = store.read(store.refs(4)[0])
        assert store.classes is not None
        assert (store.classes.tolist(), block.y.tolist()) == ([0, 1], [1, 0, 1])
    targets = open_store(path, rows="keep == 1", task="regression", **given)
    assert targets.classes is None
    assert targets.read(targets.refs(4)[0]).y.tolist() == [1.0, 0.0, 1.0]
    if odd[0] == np.inf:
        infinite = open_store(path, rows="keep >= 0", **given)
        with pytest.raises(DataError, match="label of row 1 is inf"):
            assert infinite.classes
