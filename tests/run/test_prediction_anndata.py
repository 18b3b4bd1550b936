"""Predictions in obs of a copy: the store is left as it is, the copy has all of it, and anndata reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError, DataError, OutputError, UsageError
from bigsvm.run.apply.predict import predict
from bigsvm.run.apply.prediction_files import open_writer
from bigsvm.store.formats.opener import open_store
from bigsvm.store.sealing.seal import seal
from bigsvm.store.sealing.verify import verify_store
from tests.store import formats

h5py = pytest.importorskip("h5py")

N, D = 60, 5
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, D))
Y = np.argmax(X[:, :3], axis=1)
SETS = (X[:, :3] > 0).astype(int)
OPTIONS = {"tol": 1e-2, "memory": "64MiB", "threads": 1}
CONFIG = FitConfig(memory="64MiB", threads=1)
STORES = ["v2.zarr", "v3.zarr", "plain.h5ad"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cells")
    content = {
        "X": X, "var/_index": [f"g{j}" for j in range(D)], "obs/_index": [f"cell{i}" for i in range(N)],
        "obs/kind": (Y.astype(np.int8), ["T", "B", "NK"]), "obs/size": X[:, 0], "obsm/pca": X[:, :2],
    }  # fmt: skip
    for name in STORES:
        formats.anndata(place / name, content)
    return place


@pytest.fixture(scope="module")
def model():
    """Of three classes by name."""
    return bigsvm.fit(X, np.array(["B", "NK", "T"])[Y], **OPTIONS).model


def rows(folder: Path, name: str, **options):
    return open_store(folder / name, labelled=False, **options)


def write(model, source, out: Path, **options) -> None:
    predict(model, source, out, "anndata", CONFIG, **options)


def bytes_of(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(file): file.read_bytes() for file in files}


@pytest.mark.parametrize("name", STORES)
def test_a_copy_has_all_and_the_predictions(folder: Path, model, name: str, tmp_path: Path) -> None:
    before, out = bytes_of(folder / name), tmp_path / name
    write(model, rows(folder, name), out, with_scores=True, identity={"of": "these"})
    assert bytes_of(folder / name) == before
    copy = open_store(out, label="prediction")
    found = [copy.read(ref) for ref in copy.refs(17)]
    said = np.concatenate([copy.classes[block.y] for block in found])
    np.testing.assert_array_equal(said, model.predict(X))
    np.testing.assert_array_equal(np.concatenate([block.X for block in found]), X)
    np.testing.assert_array_equal(open_store(out, label="kind").classes, ["B", "NK", "T"])
    scores = open_store(out, label="kind", matrix="obsm/prediction_score")
    held = np.concatenate([scores.read(ref).X for ref in scores.refs(17)])
    np.testing.assert_allclose(held, model.decision_function(X), atol=1e-12)


@pytest.mark.parametrize("name", ["v3.zarr", "plain.h5ad"])
def test_sets_of_labels_and_values(folder: Path, name: str, tmp_path: Path) -> None:
    out, source = tmp_path / f"sets_{name}", rows(folder, name)
    with open_writer(out, "anndata", np.array(["a", "b", "c"]), 3, False, several=True, source=source) as writer:
        for start in (0, 40):
            writer.append(start, SETS[start : start + 40], X[start : start + 40, :3])
    copy = open_store(out, labels=["prediction"])
    said = np.concatenate([copy.classes[copy.read(ref).y] for ref in copy.refs(N)])
    assert said.tolist() == [",".join(np.array(["a", "b", "c"])[row > 0]) for row in SETS]
    out = tmp_path / f"values_{name}"
    with open_writer(out, "anndata", np.zeros(0), 1, True, source=source) as writer:
        writer.append(0, np.zeros(N), X[:, :1])
    for column in ("prediction", "prediction_score"):
        values = open_store(out, label=column, task="regression")
        np.testing.assert_array_equal(values.labels_between(0, N), X[:, 0])
    with (
        pytest.raises(DataError, match="only 40 of 60 rows were predicted"),
        open_writer(tmp_path / f"short_{name}", "anndata", np.zeros(0), 1, False, source=source) as writer,
    ):
        writer.append(0, np.zeros(40), X[:40, :1])
    assert not (tmp_path / f"short_{name}").exists()


def test_the_copy_of_a_sealed_store_is_sealed(folder: Path, model, tmp_path: Path) -> None:
    import zarr

    formats.anndata(tmp_path / "a.zarr", {"X": X, "obs/_index": [f"c{i}" for i in range(N)], "obs/size": X[:, 0]})
    with pytest.warns(match="Consolidated metadata"):
        zarr.consolidate_metadata(str(tmp_path / "a.zarr"))
    seal(tmp_path / "a.zarr")
    write(model, rows(tmp_path, "a.zarr"), tmp_path / "b.zarr")
    assert verify_store(tmp_path / "b.zarr")["n_bad"] == 0
    assert "prediction" in zarr.open_group(tmp_path / "b.zarr", mode="r", use_consolidated=True)["obs"]
    write(model, rows(tmp_path, "a.zarr"), tmp_path / "b.zarr", overwrite=True)


@pytest.mark.parametrize(
    ("name", "out", "options", "error", "what"),
    [
        ("v3.zarr", "out.h5ad", {}, UsageError, "copy of a Zarr folder must be a Zarr folder.*out.zarr"),
        ("plain.h5ad", "out.zarr", {}, UsageError, "copy of an .h5ad file must be an .h5ad file"),
        ("v3.zarr", "out.zarr", {"rows": "size > 0"}, UsageError, "rows that --rows leaves out"),
        ("v3.zarr", "other.zarr", {}, OutputError, "the output exists"),
    ],
)
def test_what_cannot_be_copied_is_refused(
    folder: Path, model, name: str, out: str, options: dict, error: type[BigSVMError], what: str, tmp_path: Path
) -> None:
    (tmp_path / "other.zarr").mkdir()
    (tmp_path / "other.zarr" / "zarr.json").write_text("{}")
    with pytest.raises(error, match=what):
        write(model, rows(folder, name, **options), tmp_path / out)
    with pytest.raises(OutputError, match="has no obs/prediction"):
        write(model, rows(folder, "v3.zarr"), tmp_path / "other.zarr", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.zarr"]


def test_a_label_that_hdf5_cannot_hold_is_refused_and_zarr_holds_it(folder: Path, tmp_path: Path) -> None:
    classes, codes = np.array(["a\0b", "a\0c", "d"]), np.arange(N) % 3
    with (
        pytest.raises(DataError, match=r"HDF5 cannot hold the label 'a\\x00b'"),
        open_writer(tmp_path / "o.h5ad", "anndata", classes, 1, False, source=rows(folder, "plain.h5ad")),
    ):
        pass
    with open_writer(tmp_path / "o.zarr", "anndata", classes, 1, False, source=rows(folder, "v3.zarr")) as writer:
        writer.append(0, codes, np.zeros((N, 1)))
    copy = open_store(tmp_path / "o.zarr", label="prediction")
    assert copy.classes[copy.read(copy.refs(N)[0]).y].tolist() == classes[codes].tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["o.zarr"]


def test_a_column_that_is_there_is_not_replaced(folder: Path, model, tmp_path: Path) -> None:
    for name in ("v3.zarr", "plain.h5ad"):
        write(model, rows(folder, name), tmp_path / name)
        with pytest.raises(DataError, match="obs has a column prediction already"):
            write(model, rows(tmp_path, name), tmp_path / f"more_{name}")
        assert not (tmp_path / f"more_{name}").exists()
    with pytest.raises(UsageError, match="not AnnData"):
        write(model, open_store((X, Y)), tmp_path / "out.zarr")


@pytest.mark.filterwarnings("ignore")  # of anndata, on what will be
@pytest.mark.parametrize("name", STORES)
def test_anndata_reads_it(folder: Path, model, name: str, tmp_path: Path) -> None:
    ad = pytest.importorskip("anndata")
    write(model, rows(folder, name), tmp_path / name, with_scores=True)
    read = ad.read_h5ad if name.endswith(".h5ad") else ad.read_zarr
    found = read(tmp_path / name)
    assert found.obs["prediction"].astype(str).tolist() == model.predict(X).tolist()
    assert found.obsm["prediction_score"].shape == (N, 3)
    assert found.obs["kind"].nunique() == 3


def test_a_disk_that_fills_up_is_told_once_and_at_once(
    folder: Path, model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def full(source: str, target: Path) -> None:
        tried.append(source)
        raise OSError(28, "No space left on device", source, None, str(target))

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(
        OutputError, match=r"cannot write: No space left on device, more than [1-9]\d* bytes needed, \d+ are free"
    ) as caught:
        write(model, rows(folder, "v3.zarr"), tmp_path / "out.zarr")
    assert caught.value.where == str(tmp_path / "out.zarr")
    assert len(tried) == 1
    assert list(tmp_path.iterdir()) == []
