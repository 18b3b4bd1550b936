"""Tables by polars: lists are large there, and text is in views."""

from pathlib import Path

import numpy as np
import polars as pl
from common import D, rows, run, tell

X, y = rows()
TEXT = np.array(["no", "yes"])[y].tolist()


def write(folder: Path) -> None:
    """Columns, lists, arrays, categories."""
    frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(D)})
    numbers = frame.with_columns(label=pl.Series(y))
    numbers.write_parquet(folder / "numbers.parquet")
    tell("numbers.parquet")
    frame.with_columns(label=pl.Series(TEXT)).write_parquet(folder / "text.parquet")
    tell("text.parquet", labels="text")
    frame.with_columns(label=pl.Series(TEXT, dtype=pl.Categorical)).write_parquet(folder / "cat.parquet")
    tell("cat.parquet", labels="text")
    frame.with_columns(label=pl.Series(TEXT, dtype=pl.Enum(["yes", "unused", "no"]))).write_parquet(
        folder / "enum.parquet"
    )
    tell("enum.parquet", labels="text")
    frame.with_columns(label=pl.Series(y.astype(bool))).write_parquet(folder / "bool.parquet")
    tell("bool.parquet", labels="bool")
    lists = pl.DataFrame(
        {
            "label": y,
            "indices": [np.flatnonzero(row).tolist() for row in X],
            "values": [row[row != 0].tolist() for row in X],
        }
    )
    lists.write_parquet(folder / "lists.parquet")
    tell("lists.parquet")
    lists.write_ipc(folder / "lists.arrow")
    tell("lists.arrow")
    fixed = pl.DataFrame({"label": y, "v": X.tolist()}, schema_overrides={"v": pl.Array(pl.Float64, D)})
    fixed.write_parquet(folder / "fixed.parquet")
    tell("fixed.parquet")
    numbers.write_ipc(folder / "numbers.arrow", compression="zstd")
    tell("numbers.arrow")
    frame.with_columns(label=pl.Series(TEXT)).write_ipc(folder / "text.feather")
    tell("text.feather", labels="text")
    numbers.write_csv(folder / "numbers.csv")
    tell("numbers.csv")
    numbers.write_ndjson(folder / "numbers.ndjson")
    tell("numbers.ndjson", read=False)


run(write)
