"""Folders by dask: Parquet parts, CSV parts, Zarr, stacks of .npy."""

from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import pandas as pd
from common import D, rows, run, tell

X, y = rows()


def write(folder: Path) -> None:
    """Frames and arrays."""
    frame = dd.from_pandas(pd.DataFrame(X, columns=[f"x{j}" for j in range(D)]).assign(label=y), npartitions=3)
    frame.to_parquet(folder / "parts", write_index=False)
    tell("parts")
    frame.to_parquet(folder / "indexed")
    tell("indexed")
    frame.to_parquet(folder / "metadata", write_index=False, write_metadata_file=True)
    tell("metadata/*.parquet")
    frame.to_csv(folder / "csv" / "part-*.csv", index=False)
    tell("csv/*.csv")
    da.from_array(X, chunks=(50, D)).to_zarr(str(folder / "array.zarr"))
    tell("array.zarr", read=False)  # rows without labels
    da.to_npy_stack(str(folder / "stack"), da.from_array(X, chunks=(50, D)))
    tell("stack", read=False)


run(write)
