"""What rows belong to: fits of different selections that share every folder have the bytes of fits that share none."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.store.copy.copy_folder import copies_folder, copies_in
from bigsvm.store.formats.opener import open_store
from bigsvm.store.identity import Identity
from tests.run.selections import (
    BY_NEWTON,
    LINEAR,
    WEIGHTS,
    Opener,
    arrays,
    by_name,
    columns,
    fitted,
    matrix,
    parquet_store,
    zarr_store,
)
from tests.run.test_checkpoint import same_folder, stopped
from tests.store import formats

KINDS: dict[str, Callable[[Path], Opener]] = {
    "zarr 3 csr": lambda folder: by_name(zarr_store(folder / "s.zarr", "csr", 3)),
    "zarr 2 dense": lambda folder: by_name(zarr_store(folder / "s.zarr", "dense", 2)),
    "parquet lists": lambda folder: by_name(parquet_store(folder / "s.parquet", "csr")),
    "parquet columns": lambda folder: by_name(parquet_store(folder / "s.parquet", "dense")),
    "arrays dense": lambda _: arrays("dense"),
    "arrays csr": lambda _: arrays("csr"),
}
# No rows stay in memory: packed, they would be compiled for here alone, and belong to no folder.
OF_ALL_CLASSES = {
    "solver": "dcd", "multi_class": "crammer-singer", "memory": "64MiB", "max_passes": 2,
    "solver_options": {"row_buffer": "off"},
}  # fmt: skip
BY_COLUMNS = {"solver": "pcd", "loss": "squared_hinge", "memory": "64MiB"}
# (what is selected, options of the fit); each differs from another one in a single thing
FITS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, LINEAR),
    ({"label": "other"}, LINEAR),
    ({"weight": "w"}, LINEAR),
    ({}, BY_COLUMNS),
    ({"label": "other"}, BY_COLUMNS),
    ({"weight": "w"}, BY_COLUMNS),
    ({"label": "several", "task": "regression"}, {"solver": "smo", "loss": "epsilon_insensitive", "memory": "64MiB"}),
    ({"label": "several"}, {"solver": "smo", "loss": "hinge", "memory": "64MiB"}),
]
# Of sparse rows with columns beside them alone: dense rows would compile each of these loops once more.
OF_SEVERAL_KINDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"label": "several"}, BY_NEWTON),
    ({"label": "several"}, OF_ALL_CLASSES),
    ({"label": "several"}, {**OF_ALL_CLASSES, "C": 3.0}),
    ({"rows": "several > 0"}, BY_NEWTON),
    ({"rows": "several > 1"}, BY_NEWTON),
    ({"rows": "several > 0", "weight": "w"}, BY_NEWTON),
    ({"labels": ["label", "other"]}, BY_NEWTON),
    ({"labels": ["other", "label"]}, BY_NEWTON),
    ({"labels": ["label", "other"], "rows": "several > 0"}, BY_NEWTON),
]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.usefixtures("streaming")
def test_of_one_store_every_selection_has_its_own_model(kind: str, tmp_path: Path) -> None:
    opened = KINDS[kind](tmp_path)
    fits = FITS + (OF_SEVERAL_KINDS if kind in ("zarr 3 csr", "parquet lists") else [])
    alone = [
        fitted(opened(**selected), options, tmp_path / f"scratch {number}", tmp_path / f"alone {number}")
        for number, (selected, options) in enumerate(fits)
    ]
    shared = tmp_path / "shared"
    for number, (selected, options) in enumerate(fits):
        model = fitted(opened(**selected), options, shared, tmp_path / f"shared {number}")
        assert same_folder(model, alone[number]), (selected, options["solver"])
    assert len(copies_in(copies_folder(shared))) >= 5  # every selection was copied


def test_a_selection_spelled_out_is_the_default(tmp_path: Path) -> None:
    path = zarr_store(tmp_path / "s.zarr", "csr", 3)
    plain = open_store(path).identity
    assert plain == open_store(path, label="label").identity == open_store(path, label="obs/label").identity
    for other in ({"label": "other"}, {"weight": "w"}, {"task": "regression"}):
        assert open_store(path, **other).identity.digest != plain.digest
    assert Identity.of_document(json.loads(json.dumps(plain.document()))) == plain


def test_what_ingest_knows_of_the_content_is_of_its_own_columns(tmp_path: Path) -> None:
    X = matrix()
    path = formats.written(tmp_path / "s.zarr", X, columns(X)["label"], WEIGHTS)
    assert open_store(path).content_fingerprint is not None
    assert open_store(path, label="weight").content_fingerprint is None


@pytest.mark.parametrize("selected", [{"label": "other"}, {"weight": "w"}, {"task": "regression", "label": "several"}])
@pytest.mark.usefixtures("streaming")
def test_a_checkpoint_of_another_selection_is_refused(selected: dict[str, Any], tmp_path: Path) -> None:
    path = zarr_store(tmp_path / "s.zarr", "csr", 3)
    config = FitConfig.of(solver="smo", loss="hinge", memory="64MiB", scratch=str(tmp_path / "scratch"))
    fitted(open_store(path), dataclasses.asdict(config), tmp_path / "scratch", tmp_path / "m")
    stopped(open_store(path), config, Checkpoints(tmp_path / "run", {}, 0.0), 3)
    assert any((tmp_path / "run").iterdir())
    if "task" in selected:
        config = dataclasses.replace(config, loss="epsilon_insensitive")
    with pytest.raises(DataError, match=r"another run: (label|weight|task) was"):
        fit_store(open_store(path, **selected), config, checkpoints=Checkpoints(tmp_path / "run", {}, 1e9), resume=True)


def exchange(one: Path, two: Path) -> None:
    """Put the copies of two scratch folders under each other's names."""
    kinds = [{path.name.partition("-")[0]: path for path in copies_in(copies_folder(side))} for side in (one, two)]
    assert kinds[0].keys() == kinds[1].keys()
    for kind in kinds[0]:
        first, second = kinds[0][kind], kinds[1][kind]
        shutil.move(first, first.with_name("aside"))
        shutil.move(second, first)
        shutil.move(first.with_name("aside"), second)


@pytest.mark.parametrize("options", [LINEAR, BY_COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize("other", ["another store", "another label"])
@pytest.mark.parametrize("state", ["finished", "killed"])
@pytest.mark.usefixtures("streaming")
def test_the_copy_of_other_rows_is_made_anew(options: dict[str, Any], other: str, state: str, tmp_path: Path) -> None:
    """A restore or a careless hand may put any folder under any name."""
    paths = [zarr_store(tmp_path / f"{seed}.zarr", "dense", 3, seed) for seed in (0, 1)]
    stores = [
        open_store(paths[0]),
        open_store(paths[1]) if other == "another store" else open_store(paths[0], label="other"),
    ]
    scratches = [tmp_path / "scratch 0", tmp_path / "scratch 1"]
    models = [fitted(stores[i], options, scratches[i], tmp_path / f"m{i}") for i in (0, 1)]
    if state == "killed":  # before the document that says that all is there
        for scratch, name in itertools.product(scratches, ("staged.json", "columns.json")):
            for path in copies_folder(scratch).glob(f"*/{name}"):
                path.unlink()
    exchange(*scratches)
    for i in (0, 1):
        assert same_folder(fitted(stores[i], options, scratches[i], tmp_path / f"again {i}"), models[i])


WAYS_TO_READ: list[dict[str, Any]] = [
    {"columns": ["x", "z", "c"]},
    {"columns": ["x", "z", "c"], "scale": "maxabs"},
    {"columns": ["x", "z", "c"], "scale": "unit-norm"},
    {"columns": ["x", "z", "c"], "hash_bits": 4},
    {"columns": ["x", "z", "c"], "hash_bits": 5},
    {"columns": ["x", "z"]},
    {"columns": ["x", "z"], "scale": "maxabs"},
    {"columns": ["x", "z", "c"], "label": "other", "missing": "drop"},
]


def test_a_table_read_in_another_way_is_other_rows(streaming: None, tmp_path: Path) -> None:
    """Fits that differ in how columns become features share scratch files, and give the models of fits that do not."""
    rng = np.random.default_rng(0)
    lines = ["x,z,c,label,other"]
    for i in range(200):
        x, z = rng.normal(), 5.0 * rng.normal()
        other = "" if i % 7 == 0 else str(int(x > 0))
        lines.append(f"{x},{z},{rng.choice(list('abcd'))},{int(x + z > 0)},{other}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")

    def coefficients(scratch: Path, way: dict[str, Any]) -> bytes:
        result = bigsvm.fit(tmp_path / "table.csv", loss="hinge", scratch=str(scratch), memory="64MiB", **way)
        return bytes(result.model.coef.tobytes())

    alone = [coefficients(tmp_path / f"alone{k}", way) for k, way in enumerate(WAYS_TO_READ)]
    assert len(set(alone)) == len(alone)
    for _ in range(2):
        assert [coefficients(tmp_path / "shared", way) for way in WAYS_TO_READ] == alone


def test_names_given_to_columns_without_a_header_say_whose_rows_they_are(streaming: None, tmp_path: Path) -> None:
    """Which column holds the labels, the weights and each feature is the caller's word."""
    rng = np.random.default_rng(0)
    values = np.c_[rng.integers(0, 2, (200, 3)), rng.integers(1, 3, 200)]
    np.savetxt(tmp_path / "table.csv", values, fmt="%d", delimiter=",")
    ways = [order for order in itertools.permutations(("label", "x", "z", "weight")) if order.index("weight") > 1]

    def coefficients(scratch: Path, names: tuple[str, ...]) -> bytes:
        store = open_store(tmp_path / "table.csv", columns=names)
        result = bigsvm.fit(store, loss="hinge", scratch=str(scratch), memory="64MiB", max_passes=3)
        return result.model.coef.tobytes()

    alone = [coefficients(tmp_path / f"alone{k}", way) for k, way in enumerate(ways)]
    assert len(set(alone)) == len(ways) // 2  # of two features either has either name
    for _ in range(2):
        assert [coefficients(tmp_path / "shared", way) for way in ways] == alone


def test_an_indicator_matrix_says_whose_labels_they_are(streaming: None, tmp_path: Path) -> None:
    """Two of them may part rows into the same groups, in the same order, and mean other labels by these."""
    X = matrix().astype(np.float64)
    group = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    sets = [(1, 2, 4), (3, 4, 6), (2, 5, 6), (1, 2, 7), (1, 6, 7)]  # of each group: its labels, a bit each
    meant = [np.array([[bits >> k & 1 for k in (2, 1, 0)] for bits in of_groups]) for of_groups in sets]

    def coefficients(scratch: Path, rows: np.ndarray) -> bytes:
        result = bigsvm.fit((X, rows[group]), **BY_NEWTON, scratch=str(scratch), tol=1e-2)
        return result.model.coef.tobytes()

    alone = [coefficients(tmp_path / f"alone{k}", rows) for k, rows in enumerate(meant)]
    assert len(set(alone)) == len(alone)
    assert [coefficients(tmp_path / "shared", rows) for rows in meant] == alone


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("opening", [{}, {"scale": "unit-norm"}, {"split": 0.8}, {"positive": "1"}])
def test_arrays_that_were_changed_in_place_are_other_rows(
    opening: dict[str, Any], layout: str, streaming: None, tmp_path: Path
) -> None:
    """A store that is open over arrays has what they hold when a fit begins."""
    X, y = matrix().astype(np.float64), columns(matrix())["label"]
    rows = scipy.sparse.csr_array(X) if layout == "csr" else X
    values = rows.data if layout == "csr" else X
    store, options = open_store((rows, y), **opening), {"loss": "hinge", "memory": "64MiB", "tol": 1e-3}
    first = bigsvm.fit(store, scratch=str(tmp_path / "shared"), **options)
    values *= np.where(np.arange(values.size) % 3 == 0, -1.0, 2.0).reshape(values.shape)
    second = bigsvm.fit(store, scratch=str(tmp_path / "shared"), **options)
    anew = bigsvm.fit(open_store((rows, y), **opening), scratch=str(tmp_path / "other"), **options)
    assert second.model.coef.tobytes() == anew.model.coef.tobytes() != first.model.coef.tobytes()
    assert second.model.about["content_fingerprint"] == anew.model.about["content_fingerprint"]
    values.flat[0] = np.nan
    with pytest.raises(DataError, match=r"(?i)nan"):
        bigsvm.fit(store, scratch=str(tmp_path / "shared"), **options)
