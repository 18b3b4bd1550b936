"""Rows that change between two readings by one command: it works with the rows that it opened, or refuses.

A second reading that met other rows would fit probabilities, folds or metrics to a mixture of both.  Here the rows
change at the moment when a reading begins, so that no test depends on time.
"""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, MissingInput
from bigsvm.files.file_array import changes_are_seen
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.held_out import add_held_out
from bigsvm.run.fit import sizes
from bigsvm.run.fit.fit import fit_store
from bigsvm.store.formats.chunked import _SMALL_BYTES
from bigsvm.store.formats.tables.known_files import KnownFiles
from bigsvm.store.sealing.raw_chunks import RawChunks
from tests.products import each_of, pairs_of
from tests.store.formats import foreign, written

N = 600


def frame(seed: int, n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))  # float64: a search of such rows is compiled anyway
    found = pd.DataFrame(X, columns=list("abcd"))
    found["label"] = (X[:, seed % 4] + 0.5 * rng.standard_normal(n) > 0).astype(np.int64)
    found["part"] = rng.integers(0, 5, n)
    return found


def zarr(path: Path, rows: pd.DataFrame) -> None:
    written(path, rows[list("abcd")].to_numpy(), rows["label"].to_numpy(), layout="dense")


def raw_zarr(path: Path, rows: pd.DataFrame, chunk: int = 50) -> None:
    foreign(
        path, rows[list("abcd")].to_numpy(), rows["label"].to_numpy(), layout="dense", compressors=None, chunk=chunk
    )


def large_zarr(path: Path, rows: pd.DataFrame) -> None:
    """With chunks so large that they are read in parts."""
    assert _SMALL_BYTES < 1200 * 32
    raw_zarr(path, rows, 1200)


def parquets(path: Path, rows: pd.DataFrame) -> None:
    path.mkdir()
    for k, part in enumerate(np.array_split(np.arange(len(rows)), 3)):
        pq.write_table(pyarrow.Table.from_pandas(rows.iloc[part]), path / f"{k}.parquet", row_group_size=64)


def csv(path: Path, rows: pd.DataFrame) -> None:
    rows.to_csv(path, index=False)


def feather(path: Path, rows: pd.DataFrame) -> None:
    pyarrow.feather.write_feather(rows, path, compression="uncompressed", chunksize=100)


def _h5ad(path: Path, rows: pd.DataFrame, **packing: Any) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        file.create_dataset("X", data=rows[list("abcd")].to_numpy(), **packing).attrs["encoding-type"] = "array"
        obs = file.create_group("obs")
        obs.attrs["encoding-type"], obs.attrs["column-order"] = "dataframe", ["label", "part"]
        for name in ("label", "part"):
            obs.create_dataset(name, data=rows[name].to_numpy(), **packing)


def plain_h5ad(path: Path, rows: pd.DataFrame) -> None:
    """Whose rows lie in one piece, which is read without HDF5."""
    _h5ad(path, rows)


def packed_h5ad(path: Path, rows: pd.DataFrame) -> None:
    _h5ad(path, rows, compression="gzip", chunks=True)


FORMATS: dict[str, tuple[str, Callable[[Path, pd.DataFrame], None]]] = {
    "zarr": ("x.zarr", zarr), "raw zarr": ("x.zarr", raw_zarr), "large raw zarr": ("x.zarr", large_zarr),
    "parquet": ("x", parquets), "csv": ("x.csv", csv), "feather": ("x.feather", feather),
    "plain h5ad": ("x.h5ad", plain_h5ad), "packed h5ad": ("x.h5ad", packed_h5ad),
}  # fmt: skip


def beside(path: Path) -> Path:
    return path.with_name("new" + path.suffix)


def append(path: Path, make: Callable[[Path, pd.DataFrame], None]) -> None:
    """Rows are added as the format lets one add rows."""
    more = frame(1)
    if make is zarr:
        bigsvm.ingest((more[list("abcd")].to_numpy(), more["label"].to_numpy()), path, append=True)
    elif make is csv:
        with open(path, "a") as file:
            more.to_csv(file, index=False, header=False)
    elif make is parquets:
        pq.write_table(pyarrow.Table.from_pandas(more), path / "9.parquet")
    else:
        make(beside(path), pd.concat([frame(0), more], ignore_index=True))
        exchange(path)


def exchange(path: Path) -> None:
    if path.is_dir():
        path.rename(path.with_name("former"))
    os.replace(beside(path), path)


def replace(path: Path, make: Callable[[Path, pd.DataFrame], None]) -> None:
    """Other rows take the name."""
    make(beside(path), frame(1))
    exchange(path)


def rewrite(path: Path, make: Callable[[Path, pd.DataFrame], None]) -> None:
    """Other rows are copied over these: `cp -r new/. old/`."""
    make(beside(path), frame(1))
    if path.is_dir():
        shutil.copytree(beside(path), path, dirs_exist_ok=True)
    else:
        shutil.copyfile(beside(path), path)


def shorten(path: Path, make: Callable[[Path, pd.DataFrame], None]) -> None:
    """Fewer rows are copied over these, of which some stay where the format has several files."""
    make(beside(path), frame(1, 60))
    if path.is_dir():
        shutil.copytree(beside(path), path, dirs_exist_ok=True)
    else:
        shutil.copyfile(beside(path), path)


CHANGES = {each.__name__: each for each in (append, replace, rewrite, shorten)}


def fitted(path: Path, opened: dict[str, Any], **options: Any) -> tuple[Any, ...]:
    store = bigsvm.open_store(
        path, columns=["a", "b", "c", "d"] if path.suffix in ("", ".csv", ".feather") else (), **opened
    )
    config = FitConfig.of(**{"loss": "hinge", "tol": 1e-3, "stage": "none", "threads": 1, **options})
    result = fit_store(store, config)
    add_held_out(result, store, config)
    model = result.model
    weights = model.dual_coef if model.kind == "kernel" else model.coef
    kept = ("calibration", "content_fingerprint", "n_samples", "problem", "rows")
    return (
        np.asarray(weights).tolist(), model.intercept.tolist(), [repr(model.about.get(name)) for name in kept],
        repr(result.figures.get("held_out")),
    )  # fmt: skip


def tuned(path: Path, **options: Any) -> tuple[Any, ...]:
    opened = {"columns": ["a", "b", "c", "d"]} if path.suffix in ("", ".csv", ".feather") else {}
    found = bigsvm.tune(path, Cs=[0.1, 1.0], folds=3, loss="hinge", threads=1, **opened, **options)
    rows = [{name: value for name, value in vars(row).items() if name != "seconds"} for row in found.rows]
    refit = (
        None
        if found.refit is None
        else (found.refit.model.coef.tolist(), repr(found.refit.model.about.get("calibration")))
    )
    return [repr(row) for row in rows], refit


def evaluated(path: Path) -> Any:
    model = bigsvm.fit(frame(2)[list("abcd")].to_numpy(), frame(2)["label"].to_numpy()).model
    opened = {"columns": ["a", "b", "c", "d"]} if path.suffix in ("", ".csv", ".feather") else {}
    found = evaluate(model, bigsvm.open_store(path, **opened), FitConfig.of(threads=1))
    return {name: value for name, value in found.items() if name not in ("seconds", "memory")}


READINGS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "labels, then rows": ("run.fit.fit.open_rows", lambda path: fitted(path, {}, class_weight="balanced")),
    "scale, then rows": ("run.fit.fit.open_rows", lambda path: fitted(path, {"scale": "standard"})),
    "gamma, then rows": ("run.fit.fit.open_rows", lambda path: fitted(path, {}, kernel="rbf", gamma="scale")),
    "rows, then passes": ("run.fit.fit.make_context", lambda path: fitted(path, {}, solver="dcd")),
    "passes, then the proof": (
        "run.fit.fit.begin",
        lambda path: fitted(path, {}, solver="newton", loss="squared_hinge"),
    ),
    "rows, then calibration": ("run.fit.fit.calibrated", lambda path: fitted(path, {}, calibrate="sigmoid")),
    "rows, then the held-out": ("run.apply.held_out.evaluate", lambda path: fitted(path, {"split": 0.8})),
    "labels, then scores": ("run.apply.evaluate.scored_rows", evaluated),
    "labels, then a search": ("run.tune.search.train", tuned),
    "a search, then scores": ("run.tune.search.held_out_metrics", lambda path: tuned(path, refit=True)),
    "a search, then a refit": ("run.tune.search.choose", lambda path: tuned(path, refit=True, calibrate="isotonic")),
}
"""What is read twice -> (the function at whose call the rows change, the work)."""


def before(function: str, act: Callable[[], None], patch: pytest.MonkeyPatch) -> list[bool]:
    """Have `act` called once, when this function is called."""
    place, _, name = function.rpartition(".")
    module, acted = importlib.import_module(f"bigsvm.{place}"), list[bool]()
    former = getattr(module, name)

    def acting(*arguments: Any, **options: Any) -> Any:
        if not acted:
            acted.append(True)
            act()
        return former(*arguments, **options)

    patch.setattr(module, name, acting)
    return acted


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read anew in each pass, in small blocks."""
    monkeypatch.setattr(sizes.Sizes, "resident_from", lambda self: 1 << 50)
    monkeypatch.setattr(sizes, "BLOCK_BYTES", 2000)


@pairs_of(kind=FORMATS, reading=READINGS, change=CHANGES, streaming=[False, True])
def test_no_work_mixes_rows_of_two_versions(
    tmp_path: Path, kind: str, reading: str, change: str, streaming: bool, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    if streaming:
        request.getfixturevalue("streams")
    work_while(kind, *READINGS[reading], change, tmp_path, monkeypatch)


@pairs_of(kind=[kind for kind in FORMATS if "zarr" not in kind], change=CHANGES)
def test_a_column_of_groups_is_that_of_the_rows(
    tmp_path: Path, kind: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_while(
        kind, "run.tune.search.make_folds", lambda path: tuned(path, group="part"), change, tmp_path, monkeypatch
    )


def work_while(
    kind: str, function: str, work: Callable[[Path], Any], change: str, folder: Path, patch: pytest.MonkeyPatch
) -> None:
    """Assert that work whose rows change at the call of a function is that of the former rows, or is refused."""
    name, make = FORMATS[kind]
    path = folder / name
    make(path, frame(0))
    wanted = work(path)
    acted = before(function, lambda: CHANGES[change](path, make), patch)
    try:
        found = work(path)
    except (DataError, MissingInput):
        found = None
    assert acted
    if change == "append" and kind in ("zarr", "parquet"):
        assert found == wanted  # the rows that were there stay readable
    assert found in (None, wanted)


@each_of(
    reading=["rows, then calibration", "passes, then the proof", "labels, then scores"],
    kind=[kind for kind in FORMATS if kind not in ("zarr", "raw zarr")],
)
def test_a_change_after_any_of_the_checks_is_found_by_the_next(
    tmp_path: Path, kind: str, reading: str, streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks come before a reading, so the last of all must come after the last reading."""
    name, make = FORMATS[kind]
    owner, method = (RawChunks, "is_verified") if kind == "large raw zarr" else (KnownFiles, "check")
    check, calls, last = getattr(owner, method), 0, -1

    def changing(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        found = check(self, *arguments)
        if calls == last:
            rewrite(tmp_path / str(last) / name, make)
        return found

    monkeypatch.setattr(owner, method, changing)

    def outcome(number: int) -> Any:
        nonlocal calls, last
        (tmp_path / str(number)).mkdir()
        make(tmp_path / str(number) / name, frame(0))
        # Chunks of newer files are not remembered, so that there would be more checks, for as long as they are new.
        while not all(changes_are_seen(file.stat()) for file in (tmp_path / str(number)).rglob("*")):
            time.sleep(0.005)
        calls, last = 0, number
        try:
            return READINGS[reading][1](tmp_path / str(number) / name)
        except DataError:
            return None

    wanted, n = outcome(0), calls
    assert n > 0
    for number in sorted({*range(max(n - 6, 1), n + 1), *range(1, n, max(n // 8, 1))}):
        assert outcome(number) in (None, wanted)
        assert calls >= number
