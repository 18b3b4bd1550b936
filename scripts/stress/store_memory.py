#!/usr/bin/env python3
"""Files as others write them, ten times the budget, ingested and fitted in a hard cgroup of budget + 256 MiB.

A Parquet file of 300,000 rows in one row group, AnnData on Zarr, and an .h5ad of compressed chunks hold the same
sparse rows.  Each is ingested, and fitted as it lies there, in the cage, page cache included.  Nothing may be
killed, anonymous memory above the base stays within the budget, and the three have one content and one model, byte
for byte.

    scripts/stress/store_memory.py --memory 72MiB --rows 300000
    scripts/stress/store_memory.py --smoke
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from memory_test import OVERHEAD, run
from zarr.errors import UnstableSpecificationWarning

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.ingest import demo_rows
from bigsvm.units import MIB, parse_bytes, show_bytes

BESIDE = 6
"""Rows of the demonstration side by side in one row of some 324 entries; the first alone decides the label."""
NAMES = ["B cell", "T cell"]


def make_rows(n_samples: int) -> tuple[CSR, np.ndarray]:
    """(rows of float32, codes of their labels)."""
    d = demo_rows.N_FEATURES
    direction = np.random.default_rng(demo_rows.SEED).standard_normal(d)
    entries: list[tuple[np.ndarray, np.ndarray]] = []
    lengths, codes = [], []
    for number, start in enumerate(range(0, n_samples, demo_rows.BLOCK_ROWS)):
        n_rows = min(demo_rows.BLOCK_ROWS, n_samples - start)
        parts = [demo_rows.make_block(BESIDE * number + k, n_rows, direction) for k in range(BESIDE)]
        n_entries = [np.diff(part.indptr) for part, _ in parts]
        row = np.concatenate([np.repeat(np.arange(n_rows), n) for n in n_entries])
        order = np.argsort(row, kind="stable")  # within a row: the first part's entries, then the second's
        values = np.concatenate([part.data for part, _ in parts])[order] / np.float32(BESIDE**0.5)
        entries.append((values, np.concatenate([part.indices + d * k for k, (part, _) in enumerate(parts)])[order]))
        lengths.append(sum(n_entries))
        codes.append(parts[0][1] > 0)
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(lengths))))
    data, indices = (np.concatenate(arrays) for arrays in zip(*entries, strict=True))
    return CSR(data, indices, indptr.astype(np.int64)), np.concatenate(codes).astype(np.int8)


def write_parquet(path: Path, X: CSR, codes: np.ndarray) -> None:
    """Lists of indices and values, all rows in one row group."""
    offsets = pa.array(X.indptr.astype(np.int32))
    table = pa.table({
        "label": np.array(NAMES)[codes],
        "indices": pa.ListArray.from_arrays(offsets, pa.array(X.indices)),
        "values": pa.ListArray.from_arrays(offsets, pa.array(X.data)),
    }).replace_schema_metadata({"n_features": str(BESIDE * demo_rows.N_FEATURES)})  # fmt: skip
    pq.write_table(table, path, row_group_size=len(codes))
    if pq.ParquetFile(path).metadata.num_row_groups != 1:
        raise SystemExit(f"{path} has not one row group")


def write_anndata(path: Path, X: CSR, codes: np.ndarray) -> None:
    """As anndata writes it: Zarr 3 in chunks of zarr's own codec, or HDF5 in compressed chunks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)  # names of Zarr 3 are such
        if path.suffix == ".h5ad":
            with h5py.File(path, "w") as root:
                write_groups(root, write_h5, X, codes)
        else:
            write_groups(zarr.create_group(path), write_zarr, X, codes)


def write_groups(root: Any, write: Callable[[Any, str, Any], None], X: CSR, codes: np.ndarray) -> None:
    """AnnData's tree."""
    n_features = BESIDE * demo_rows.N_FEATURES
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    matrix, obs, var = (root.create_group(name) for name in ("X", "obs", "var"))
    matrix.attrs.update({"encoding-type": "csr_matrix", "shape": [len(codes), n_features]})
    for name, values in (("data", X.data), ("indices", X.indices), ("indptr", X.indptr.astype(np.int32))):
        write(matrix, name, values)
    for frame, columns in ((obs, ["label"]), (var, [])):
        frame.attrs.update({"encoding-type": "dataframe", "_index": "_index", "column-order": columns})
    write(obs, "_index", [f"cell{i}" for i in range(len(codes))])
    write(var, "_index", [f"gene{j}" for j in range(n_features)])
    label = obs.create_group("label")
    label.attrs.update({"encoding-type": "categorical", "ordered": False})
    write(label, "codes", codes)
    write(label, "categories", NAMES)


def write_zarr(group: Any, name: str, values: Any) -> None:
    """An array in chunks of 125,000 elements."""
    chunks = (min(125_000, len(values)),)
    if isinstance(values, list):
        array = group.create_array(name, shape=(len(values),), dtype="string", chunks=chunks)
        array[:] = np.array(values, object)
        return
    # All chunks are there, also those of zeros alone.
    group.create_array(name, data=values, chunks=chunks, config={"write_empty_chunks": True})


def write_h5(group: Any, name: str, values: Any) -> None:
    """A dataset, compressed."""
    kind = {"dtype": h5py.string_dtype()} if isinstance(values, list) else {}
    group.create_dataset(name, data=values, chunks=True, compression="gzip", compression_opts=1, **kind)


FORMS: dict[str, Callable[[Path, CSR, np.ndarray], None]] = {
    "rows.parquet": write_parquet,
    "atlas.zarr": write_anndata,
    "atlas.h5ad": write_anndata,
}


def above_base(document: dict[str, Any]) -> int:
    """Anonymous bytes that a command held at most, over its libraries and compiled code."""
    used = document["result"]["memory"]
    return int(used["peak_anon_bytes"] - used["base_bytes"])


def one_form(source: Path, budget: int, work: Path) -> tuple[dict[str, bytes | str], int]:
    """Ingest and fit a file in the cage; (what all forms must have alike, bytes that the larger had above the base)."""
    model, caged = work / "m", budget + OVERHEAD
    seconds, document = run(["ingest", source, work / "rows.zarr", "--memory", budget], caged, work)
    content, ingesting = document["result"]["content_fingerprint"], above_base(document)
    sys.stdout.write(f"{source.name}: ingest {seconds:.1f} s, {show_bytes(ingesting)} above the base; ")
    fit = ["fit", source, "--loss", "hinge", "--c", "0.1", "--tol", "1e-2", "--memory", budget]
    seconds, document = run([*fit, "--scratch", work / "scratch", "-o", model], caged, work)
    fitting, passes = above_base(document), document["result"]["passes"]
    sys.stdout.write(f"fit {seconds:.1f} s, {passes:.1f} passes, {show_bytes(fitting)} above the base\n")
    sys.stdout.flush()
    over = max(ingesting, fitting)
    if over > budget:
        raise SystemExit(f"{source.name}: {over} bytes above the base, the budget is {budget}")
    arrays: dict[str, bytes | str] = {path.name: path.read_bytes() for path in model.glob("*.npy")}
    return {"content": content, **arrays}, over


def main() -> None:
    """Write the files, and go through them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=parse_bytes, default=72 * MIB)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--forms", default=",".join(FORMS), help=f"names with commas between [{','.join(FORMS)}]")
    parser.add_argument("--work", help="folder on a disk; a temporary one by default")
    parser.add_argument("--smoke", action="store_true", help="500 rows, one of the files")
    options = parser.parse_args()
    if options.smoke:
        options.rows, options.forms = 500, "rows.parquet"
    found: dict[str, dict[str, bytes | str]] = {}
    most = 0
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        files = Path(folder) / "files"
        files.mkdir()
        X, codes = make_rows(options.rows)
        times = (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / options.memory
        for name in options.forms.split(","):
            FORMS[name](files / name, X, codes)
        del X, codes
        for name in options.forms.split(","):
            work = Path(folder) / "work"
            work.mkdir()
            found[name], over = one_form(files / name, options.memory, work)
            most = max(most, over)
            shutil.rmtree(work)
    first, *others = found.values()
    if any(other != first for other in others):
        raise SystemExit(f"contents or models differ: {', '.join(found)}")
    sys.stdout.write(
        f"{times:.1f} times the budget: no kill, at most {most / MIB:.1f} of {show_bytes(options.memory)} above the "
        "base; one content, one model\n"
    )


if __name__ == "__main__":
    main()
