"""Labels keep what they are: large numbers, text that looks like numbers, line ends, and sets of them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, UsageError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4))


@pytest.mark.parametrize("largest", [2**53 + 2, 2**60 + 2, 2**63 - 1, 2**64 - 1])
def test_whole_labels_are_told_apart_to_the_last_digit(largest: int) -> None:
    dtype = np.uint64 if largest >= 2**63 else np.int64
    labels = np.array([5, largest - 1, largest], dtype)
    y = labels[np.arange(120) % 3]
    expected = bigsvm.fit((X, y == largest), tol=1e-6).figures["objective"]
    found = bigsvm.fit((X, y), positive=str(largest), tol=1e-6)
    assert found.figures["objective"] == pytest.approx(expected, rel=1e-9)
    renamed = bigsvm.open_store((X, y), label_map={str(largest): "7"}).classes
    assert renamed is not None
    assert renamed.tolist() == [5, 7, largest - 1]
    other = bigsvm.open_store((X, y), label_map={"5": "6"}).classes
    assert other is not None
    assert other.tolist() == [6, largest - 1, largest]


@pytest.mark.parametrize("options", [{"positive": "1"}, {"label_map": {"0": "1"}}], ids=str)
def test_sets_of_labels_are_not_renamed(options: dict[str, Any]) -> None:
    Y = (X[:, :3] > 0).astype(int)
    with pytest.raises(UsageError, match="positive and label_map do not apply to rows with several labels"):
        bigsvm.fit(X, Y, **options)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_targets_of_a_collection_are_no_classes(loss: str) -> None:
    array = pytest.importorskip("dask.array")
    y = np.arange(120) % 3 + 0.5
    for rows in ((X, y), (array.from_array(X, chunks=(50, 4)), array.from_array(y, chunks=50))):
        with pytest.raises((DataError, UsageError), match=r"needs class labels and the .* holds a regression target"):
            bigsvm.fit(*rows, loss=loss)


@pytest.mark.parametrize("hash_bits", [None, 3])
def test_a_frame_is_not_taken_for_features_made_of_text(hash_bits: int | None, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"n": X[:, 0], "c": np.array(["u", "v", "w"])[np.arange(120) % 3]})
    frame.assign(label=(X[:, 0] > 0).astype(int)).to_csv(tmp_path / "t.csv", index=False)
    model = bigsvm.fit(tmp_path / "t.csv", label="label", hash_bits=hash_bits).model
    unrelated = pandas.DataFrame(
        RNG.standard_normal((5, model.n_features)), columns=[f"q{j}" for j in range(model.n_features)]
    )
    for given in (frame, unrelated):
        with pytest.raises(DataError, match=r"encodes text columns \(c\)"):
            model.predict(given)


def test_weights_are_an_array_of_an_archive(tmp_path: Path) -> None:
    y, weight = (X[:, 0] > 0).astype(int), RNG.uniform(0.5, 2.0, 120)
    np.savez(tmp_path / "rows.npz", X=X, y=y, weight=weight)
    bigsvm.ingest(tmp_path / "rows.npz", tmp_path / "rows.zarr", weight="weight")
    store = bigsvm.open_store(tmp_path / "rows.zarr")
    np.testing.assert_array_equal(store.read(store.refs(120)[0]).sample_weight, weight)
    with pytest.raises(UsageError, match="no array 'w'"):
        bigsvm.ingest(tmp_path / "rows.npz", tmp_path / "other.zarr", weight="w")


@pytest.mark.parametrize("label", ["e\nf", "e\rf", "e\r\nf", 'e"f', "e,f"])
def test_a_label_of_any_letters_is_one_field_of_csv(label: str, tmp_path: Path) -> None:
    y = np.array(["a", label])[(X[:, 0] > 0).astype(int)]
    bigsvm.ingest((X, y), tmp_path / "rows.zarr")
    bigsvm.fit(tmp_path / "rows.zarr").save_model(tmp_path / "m")
    assert (
        run(["predict", str(tmp_path / "m"), str(tmp_path / "rows.zarr"), "-o", str(tmp_path / "p.csv"), "--scores"])
        == 0
    )
    with open(tmp_path / "p.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert [len(row) for row in rows] == [2] * 120
    assert {row[0] for row in rows} == {"a", label}


@pytest.mark.parametrize(
    "labels", [("1", "01"), ("1", "2"), ("NA", "b"), ("", "b"), ("true", "false"), ("a", "b"), ("a", "1")]
)
def test_csv_gives_labels_back_or_is_refused(labels: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    y = np.array(labels)[np.arange(120) % 2]
    bigsvm.ingest((X, y), tmp_path / "rows.zarr")
    code = run(["dump", str(tmp_path / "rows.zarr"), str(tmp_path / "o.csv")])
    assert code == (0 if "a" in labels else 65)
    if code == 65:
        assert "some text labels would be read back from CSV" in capsys.readouterr().err
        assert not (tmp_path / "o.csv").exists()
    else:
        found = bigsvm.open_store(tmp_path / "o.csv", label="label").classes
        assert found is not None
        assert found.tolist() == sorted(labels)


def test_a_start_of_other_models_says_which(tmp_path: Path) -> None:
    y = np.arange(120) % 3
    bigsvm.fit((X, y), tol=0.1).save_model(tmp_path / "m")
    with pytest.raises(DataError, match="is for each class against the rest, but this fit is for pairs of classes"):
        bigsvm.fit((X, y), warm_start=str(tmp_path / "m"), solver="smo", tol=0.1)
