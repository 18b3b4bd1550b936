"""Files that cannot be read as rows, and how to convert them."""

from __future__ import annotations

import os
from pathlib import Path

from bigsvm.errors import UsageError
from bigsvm.store.formats.tables.table_names import PARQUET

_OTHER = "make it Parquet, .npz or svmlight text first"
_PICKLE = "a pickle is a program, which is never run here: save numbers as Parquet or .npz"
REMEDIES = {
    ".h5": _OTHER,
    ".mat": _OTHER,
    ".arff": _OTHER,
    ".json": _OTHER,
    ".jsonl": _OTHER,
    ".ndjson": _OTHER,
    ".orc": _OTHER,
    ".xlsx": _OTHER,
    ".loom": "anndata reads it: write it as .h5ad",
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".joblib": _PICKLE,
}
"""Suffix -> what a user can do."""


def not_readable(name: str, suffix: str) -> UsageError:
    """The error for a file with one of these suffixes."""
    stem = name[: name.lower().rindex(suffix)]
    remedy = REMEDIES[suffix].replace("{name}", name).replace("{stem}", stem)
    return UsageError(f"{suffix} files are not read", name, remedy)


def refuse_partitions(name: str) -> None:
    """Raise UsageError for a folder with Parquet files in subfolders such as `day=3`, which would be left out."""
    for folder, subfolders, files in os.walk(name):
        within = Path(folder).relative_to(name).parts
        if within and any(file.lower().endswith(PARQUET) for file in files):
            pattern = "/".join([name.rstrip("/"), *("*" for _ in within), "*.parquet"])
            raise UsageError(
                f"partitioned: its Parquet files lie in subfolders such as {within[0]}", name,
                f"name the files: '{pattern}' (what the folders' names say is then no column)",
            )  # fmt: skip
        subfolders[:] = sorted(subfolder for subfolder in subfolders if "=" in subfolder)
