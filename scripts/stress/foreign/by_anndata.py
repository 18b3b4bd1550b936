"""AnnData by anndata: HDF5 and Zarr in both versions, every form of X, every kind of column that labels come in."""

import warnings
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp
from common import D, N, rows, run, tell

warnings.simplefilter("ignore")
X, y = rows()
TEXT = np.array(["no", "yes"])[y]
HOLES = np.arange(N) == 7


def cells(matrix) -> ad.AnnData:
    """A matrix with columns of labels of all kinds."""
    obs = pd.DataFrame(
        {
            "label": y,
            "text": TEXT.astype(object),
            "unused": pd.Categorical(TEXT, categories=["yes", "never", "no"]),
            "flag": y.astype(bool),
            "nullable": pd.array(y, dtype="Int64"),
            "flags": pd.array(y.astype(bool), dtype="boolean"),
            "holes": pd.array(np.where(HOLES, None, y), dtype="Int64"),
            "strings": pd.array(TEXT, dtype="string"),
        },
        index=[f"cell{i}" for i in range(N)],
    )
    return ad.AnnData(matrix, obs=obs, var=pd.DataFrame(index=[f"gene{j}" for j in range(D)]))


COLUMNS = {"label": "numbers", "text": "text", "unused": "text", "flag": "bool", "nullable": "numbers", "flags": "bool",
           "strings": "text"}  # fmt: skip


def write(folder: Path) -> None:
    """All of it."""
    ad.settings.allow_write_nullable_strings = True
    forms = {"csr": sp.csr_matrix(X), "csc": sp.csc_matrix(X), "dense": X, "array": sp.csr_array(X)}
    for name, matrix in forms.items():
        cells(matrix).write_h5ad(folder / f"{name}.h5ad")
        cells(matrix).write_h5ad(folder / f"{name}-gzip.h5ad", compression="gzip")
        for version in (2, 3):
            ad.settings.zarr_write_format = version
            cells(matrix).write_zarr(folder / f"{name}-{version}.zarr")
        for file in (f"{name}.h5ad", f"{name}-gzip.h5ad", f"{name}-2.zarr", f"{name}-3.zarr"):
            tell(file, label="obs/label", zeros=True)
    for file in ("csr.h5ad", "csr-2.zarr", "csr-3.zarr"):
        for column, kind in COLUMNS.items():
            tell(file, labels=kind, label=column, zeros=True)
        tell(file, read=False, label="holes", zeros=True)
    counts = cells(sp.csr_matrix(np.rint(np.abs(X))).astype(np.int8))
    counts.layers["real"] = sp.csr_matrix(X)
    counts.raw = cells(sp.csr_matrix(X))
    counts.obsm["pca"] = X
    counts.write_h5ad(folder / "layers.h5ad")
    for matrix in ("layers/real", "raw/X", "obsm/pca"):
        tell("layers.h5ad", label="label", matrix=matrix)
    shards = {"chunks": (64,), "shards": (256,)}
    ad.settings.zarr_write_format = 3

    def sharded(write_func, store, key, elem, dataset_kwargs, iospec):
        one = isinstance(elem, (sp.csr_matrix, sp.csr_array))
        write_func(store, key, elem, dataset_kwargs={**dataset_kwargs, **(shards if one else {})})

    import zarr

    group = zarr.open_group(folder / "sharded.zarr", mode="w", zarr_format=3)
    ad.experimental.write_dispatched(group, "/", cells(sp.csr_matrix(X)), callback=sharded)
    tell("sharded.zarr", label="label", zeros=True)


run(write)
