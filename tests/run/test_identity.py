"""What a thing belongs to: fits that share every folder come to the bytes of fits that share none."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import zarr

import bigsvm
from bigsvm.cli.job import Job
from bigsvm.config import MODEL_OPTIONS, RESULT_OPTIONS, FitConfig
from bigsvm.errors import BigSVMError, DataError
from bigsvm.model.model_files import read_document
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.problem_identity import asked_digest
from bigsvm.store.copy.copy_folder import copies_folder, copies_in
from bigsvm.store.formats.opener import open_store
from bigsvm.store.identity import Identity
from tests.run.test_checkpoint import same_folder, stopped
from tests.store import formats

N, D = 150, 6
WEIGHTS = np.where(np.arange(N) % 3 == 0, 4.0, 0.5)


def matrix(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.7)).astype(np.float32)


def columns(X: np.ndarray) -> dict[str, np.ndarray]:
    """Columns that may all serve as labels: two of classes, one of numbers that are classes or targets."""
    return {
        "label": np.where(X[:, 0] > 0, 1, -1),
        "other": np.where(X[:, 1] > 0, 1, -1),
        "several": np.rint(np.clip(3 * X[:, 2], -2, 2)).astype(np.int64),
    }


def zarr_store(path: Path, layout: str, version: int, seed: int = 0) -> Path:
    X = matrix(seed)
    formats.foreign(path, X, columns(X)["label"], version=version, layout=layout)
    frame = zarr.open_group(path, mode="a")["obs"]
    for name, values in (("other", columns(X)["other"]), ("several", columns(X)["several"]), ("w", WEIGHTS)):
        frame.create_array(name, data=values, chunks=(16,))
    return path


def parquet_store(path: Path, layout: str) -> Path:
    X = matrix()
    formats.parquet(path, X, columns(X)["label"], layout=layout)
    table = pq.read_table(path)
    for name in ("other", "several"):
        table = table.append_column(name, pa.array(columns(X)[name]))
    pq.write_table(table.append_column("w", pa.array(WEIGHTS)), path, row_group_size=40)
    return path


Opener = Callable[..., Any]


def by_name(path: Path) -> Opener:
    return lambda **selected: open_store(path, **({} if "labels" in selected else {"label": "label"}) | selected)


def arrays(layout: str) -> Opener:
    def opened(label: str = "label", weight: str | None = None, task: Any = "auto") -> Any:
        X = matrix()
        rows = X if layout == "dense" else formats.csr(X)
        if layout == "csr":
            import scipy.sparse

            rows = scipy.sparse.csr_array((rows.data, rows.indices, rows.indptr), shape=X.shape)
        y = columns(X)[label]
        return open_store((rows, y) if weight is None else (rows, y, WEIGHTS), task=task)

    return opened


KINDS: dict[str, Callable[[Path], Opener]] = {
    "zarr 3 csr": lambda folder: by_name(zarr_store(folder / "s.zarr", "csr", 3)),
    "zarr 2 dense": lambda folder: by_name(zarr_store(folder / "s.zarr", "dense", 2)),
    "parquet lists": lambda folder: by_name(parquet_store(folder / "s.parquet", "csr")),
    "parquet columns": lambda folder: by_name(parquet_store(folder / "s.parquet", "dense")),
    "arrays dense": lambda _: arrays("dense"),
    "arrays csr": lambda _: arrays("csr"),
}
LINEAR = {"solver": "dcd", "loss": "hinge", "memory": "64MiB"}
BY_NEWTON = {"solver": "newton", "loss": "squared_hinge", "memory": "64MiB"}
OF_ALL_CLASSES = {"solver": "dcd", "multi_class": "crammer-singer", "memory": "64MiB", "max_passes": 2}
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


def fitted(store: Any, options: dict[str, Any], scratch: Path, model: Path) -> Path:
    result = fit_store(store, FitConfig.of(**{**options, "scratch": str(scratch)}))
    result.save_model(model)
    result.close()
    return model


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


# One other value of every option.  Those that name places or programs are set by the test.
OTHERS: dict[str, Any] = {
    "solver": "pcd", "loss": "squared_hinge", "C": 2.0, "lam": 0.1, "bias": "none", "bias_scale": 2.0,
    "class_weight": {"1": 2.0}, "multi_class": "ovr", "epsilon": 0.2, "nu": 0.3,
    "kernel": "rbf", "gamma": 0.3, "degree": 2,
    "assume_psd": True, "coef0": 1.0, "wss": "1", "working_set": 2, "shrinking": False, "cache_memory": "1MiB",
    "tol": 1e-2, "stop": "paper", "max_passes": 3.0, "max_time": 1e6, "seed": 1, "shards": 2, "rounds_per_pass": 8,
    "sum_seconds": 0.5,
    "solver_options": {"momentum": "off"}, "memory": "65MiB", "scratch": None, "scratch_limit": "1GiB",
    "stage": "none", "threads": 2, "scheduler": "serial", "scheduler_file": None, "workers": 2,
    "worker_scratch": "/near", "no_dual": True,
    "C_path": None, "warm_start": "/nowhere/old.model",
    "calibrate": "isotonic", "calibrate_share": 0.5,
}  # fmt: skip
KERNEL_ONLY = (
    "epsilon",
    "nu",
    "gamma",
    "degree",
    "coef0",
    "assume_psd",
    "wss",
    "working_set",
    "shrinking",
    "cache_memory",
)
ASKED_ONLY = ("scratch", "scheduler_file", "C_path", "solver_options", "warm_start")
"""Options that these fits cannot take one by one; their identity is looked at all the same."""


def base_of(name: str) -> dict[str, Any]:
    """A fit in which option `name` means something."""
    if name == "epsilon":
        return {"solver": "smo", "loss": "epsilon_insensitive", "memory": "64MiB"}
    if name == "nu":
        return {"loss": "nu_svc", "kernel": "rbf", "gamma": 0.5, "nu": 0.2, "memory": "64MiB"}
    if name == "assume_psd":  # K is not, by its constant; where beta sums to 0 that shows nowhere
        kernel = {"kernel": "poly", "degree": 1, "coef0": -1e-3, "gamma": 0.5}
        return {"solver": "smo", "loss": "hinge", "memory": "64MiB", **kernel}
    if name in KERNEL_ONLY:
        kernel = {"degree": "poly", "coef0": "poly"}.get(name, "rbf")
        extra = {"working_set": 2} if name in ("wss", "shrinking") else {}
        return {"solver": "smo", "kernel": kernel, "gamma": 0.5, "loss": "hinge", "memory": "64MiB", **extra}
    if name == "stop":
        return {"solver": "hyperpass", "loss": "hinge", "bias": "none", "memory": "64MiB"}
    if name == "solver":
        return {**LINEAR, "loss": "squared_hinge"}
    if name == "loss":
        return LINEAR
    if name == "kernel":
        return {"solver": "smo", "loss": "hinge", "memory": "64MiB"}
    return {**LINEAR, "bias": "augmented"}


def config_of(**options: Any) -> FitConfig:
    C_path = options.pop("C_path", None)
    return dataclasses.replace(FitConfig.of(**options), C_path=C_path)


def test_every_option_says_whether_it_changes_the_result() -> None:
    fields = {option.name for option in dataclasses.fields(FitConfig)}
    assert fields == set(OTHERS)
    assert set(RESULT_OPTIONS) | {"no_dual"} == set(MODEL_OPTIONS)
    nothing = {"cache_memory", "max_time", "scratch", "scratch_limit", "threads", "workers", "worker_scratch"}
    nothing |= {"scheduler", "scheduler_file"}
    assert fields - set(MODEL_OPTIONS) == nothing


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in ASKED_ONLY])
@pytest.mark.usefixtures("streaming")
def test_options_that_change_share_folders_and_no_bytes(name: str, tmp_path: Path) -> None:
    """In shared folders each fit has the bytes of its own; a checkpoint goes on only where they are the same bytes."""
    path = zarr_store(tmp_path / "s.zarr", "csr", 3)
    store = open_store(path, label="several", task="regression") if name == "epsilon" else open_store(path)
    base = base_of(name)
    other = {**base, name: OTHERS[name]}
    shared = tmp_path / "shared"
    one = fitted(store, base, shared, tmp_path / "first")  # alone, too
    two = fitted(store, other, tmp_path / "scratch", tmp_path / "alone")
    assert same_folder(fitted(store, other, shared, tmp_path / "second"), two)
    assert same_folder(fitted(store, base, shared, tmp_path / "third"), one)
    if name not in MODEL_OPTIONS:
        assert same_folder(one, two)
    start, end = (FitConfig.of(**{**options, "scratch": str(shared)}) for options in (base, other))
    stopped(store, start, Checkpoints(tmp_path / "run", {}, 0.0), 12 if start.solver == "dcd" else 3)
    assert any((tmp_path / "run").iterdir())
    if name in RESULT_OPTIONS:
        with pytest.raises(DataError, match=f"another run: ({name}|solver|why|shards) was"):
            fit_store(store, end, checkpoints=Checkpoints(tmp_path / "run", {}, 1e9), resume=True)
        return
    result = fit_store(store, end, checkpoints=Checkpoints(tmp_path / "run", {}, 1e9), resume=True)
    result.save_model(tmp_path / "resumed")
    assert same_folder(tmp_path / "resumed", two)


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


@pytest.mark.parametrize("name", list(OTHERS))
def test_what_was_asked_tells_every_option_that_changes_a_model(name: str, tmp_path: Path) -> None:
    identity = Identity.of("0" * 32, matrix="X", label="obs/label", weight="", task="auto")
    base = FitConfig(loss="hinge")
    changed = OTHERS[name] if OTHERS[name] is not None else [1.0, 2.0] if name == "C_path" else "elsewhere"
    other = dataclasses.replace(base, **{name: changed})
    assert (asked_digest(identity, base) != asked_digest(identity, other)) == (name in MODEL_OPTIONS)
    elsewhere = Identity.of("0" * 32, matrix="X", label="obs/other", weight="", task="auto")
    assert asked_digest(identity, base) != asked_digest(elsewhere, base)
    jobs = [
        Job("s.zarr", None, None, tmp_path / "m", tmp_path / "r", config, 60.0, False, False).document()
        for config in (base, other)
    ]
    assert jobs[0] != jobs[1]  # whatever differs, a finished run is not taken for the one that is asked for


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


def test_every_flipped_bit_of_a_model_document_is_refused_or_harmless(tmp_path: Path) -> None:
    X = matrix()
    folder = fitted(open_store((X, columns(X)["label"])), {**LINEAR, "tol": 0.5}, tmp_path / "scratch", tmp_path / "m")
    path, content = folder / "model.json", (folder / "model.json").read_bytes()
    whole = read_document(folder, "m")
    refused = 0
    flips = range(0, 8 * len(content), 3)  # each bit of a byte is among them
    for bit in flips:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert read_document(folder, "m") == whole
        except BigSVMError:
            refused += 1
    assert refused > 0.9 * len(flips)


def test_an_older_model_document_without_a_digest_is_read(tmp_path: Path) -> None:
    X = matrix()
    folder = fitted(open_store((X, columns(X)["label"])), {**LINEAR, "tol": 0.5}, tmp_path / "scratch", tmp_path / "m")
    document = json.loads((folder / "model.json").read_text())
    now = read_document(folder, "m")
    del document["digest"]
    for version in (1, 2):
        (folder / "model.json").write_text(json.dumps({**document, "format_version": version}))
        assert read_document(folder, "m") == {**now, "format_version": version}
    (folder / "model.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="its own digest"):
        read_document(folder, "m")


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
