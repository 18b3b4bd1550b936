"""The caller of an ingest, as a program: ingesting.py PARTS STORE [--scheduler-file FILE] [--held] [--overwrite]

With --held it says so when it is about to give the first chunk of a worker its place, and waits for a line.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from on_cluster.doomed import stand

CHUNK_BYTES = 100_000  # some of each part, none of which ends where a part does


def write_parts(folder: Path, files: int, rows: int, columns: int = 40, seed: int = 0) -> None:
    """Parquet files of dense rows with labels and weights; some have a few rows more."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng = np.random.default_rng(seed)
    for number in range(files):
        n = rows + 7 * (number % 5)
        table = {f"x{k}": rng.standard_normal(n).astype(np.float32) for k in range(columns)}
        table["label"], table["weight"] = np.where(table["x0"] > 0, 1.0, -1.0), rng.random(n) + 0.5
        pq.write_table(pa.table(table), folder / f"{number:03d}.parquet")


def read_part(path: str) -> Any:
    """(X, y, weights) of a file: what a partition computes on a worker."""
    import pyarrow.parquet as pq

    stand("reading")
    table = pq.read_table(path, use_threads=False)
    columns = {name: column.to_numpy() for name, column in zip(table.column_names, table.columns, strict=True)}
    y, weights = columns.pop("label"), columns.pop("weight")
    return np.ascontiguousarray(np.stack(list(columns.values()), axis=1)), y, weights


def main() -> None:
    """Ingest, and end as the command line would."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", type=Path)
    parser.add_argument("store", type=Path)
    parser.add_argument("--scheduler-file")
    parser.add_argument("--held", action="store_true")
    parser.add_argument("--overwrite", action="store_true")
    asked = parser.parse_args()

    import dask
    from distributed import Client

    import bigsvm
    from bigsvm.errors import BigSVMError

    if asked.held:
        _hold()
    parts = [dask.delayed(read_part)(str(path)) for path in sorted(asked.parts.glob("*.parquet"))]
    how = {"chunk_bytes": CHUNK_BYTES, "overwrite": asked.overwrite}
    try:
        if asked.scheduler_file is None:
            bigsvm.ingest(parts, asked.store, **how)
        else:
            with Client(scheduler_file=asked.scheduler_file, set_as_default=False) as client:
                bigsvm.ingest(parts, asked.store, client=client, **how)
    except BigSVMError as error:
        sys.stderr.write(f"bigsvm: {error}\n")
        sys.exit(error.code)


def _hold() -> None:
    from bigsvm.store.ingest.chunk_files import ChunkFiles

    take_over, held = ChunkFiles.take_over, []

    def holding(self: ChunkFiles, *told: Any) -> None:
        if not held:
            sys.stdout.write("held\n")
            sys.stdout.flush()
            held.append(sys.stdin.readline())
        take_over(self, *told)

    ChunkFiles.take_over = holding  # type: ignore[method-assign]


if __name__ == "__main__":
    from on_cluster import ingesting  # under its name, by which workers find `read_part`

    ingesting.main()
