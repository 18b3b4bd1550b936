"""AnnData by annbatch, for training from disk: one store in shards, and collections whose rows it shuffled."""

import warnings
from pathlib import Path

import annbatch
import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp
import zarr
from common import D, N, rows, run, tell

warnings.simplefilter("ignore")
X, y = rows()


def cells(matrix) -> ad.AnnData:
    """A matrix with labels as a number and as a category."""
    obs = pd.DataFrame(
        {"label": y, "text": pd.Categorical(np.array(["no", "yes"])[y])}, index=[f"cell{i}" for i in range(N)]
    )
    return ad.AnnData(matrix, obs=obs, var=pd.DataFrame(index=[f"gene{j}" for j in range(D)]))


def write(folder: Path) -> None:
    """All of it.  A collection is refused; the data sets that it has are read, and join one another."""
    for name, matrix in (("csr", sp.csr_matrix(X)), ("dense", X)):
        one = cells(matrix)
        group = zarr.open_group(folder / f"{name}.zarr", mode="w", zarr_format=3)
        annbatch.write_sharded(group, one, n_obs_per_chunk=10, shard_size=40)
        source = folder / f"{name}.h5ad"
        one.write_h5ad(source)
        for shuffle in (False, True):
            for size, kind in ((N, "one"), (N // 3, "several")):
                made = f"{name}-{kind}-{'shuffled' if shuffle else 'in-order'}"
                options = {"n_obs_per_chunk": 10, "shard_size": 20, "dataset_size": size, "shuffle_chunk_size": 10}
                annbatch.DatasetCollection(folder / f"{made}.zarr").add_adatas([source], shuffle=shuffle, **options)
                tell(f"{made}.zarr", read=False, label="obs/label", zeros=True)
                tell(f"{made}.zarr/dataset_*", label="obs/label", append=True)
                tell(f"{made}.zarr/dataset_*", labels="text", label="obs/text", append=True)
                if kind == "one":
                    tell(f"{made}.zarr/dataset_0", label="obs/label", zeros=True)
                    tell(f"{made}.zarr/dataset_0", labels="text", label="obs/text", zeros=True)
        tell(f"{name}.zarr", label="obs/label", zeros=True)
        tell(f"{name}.zarr", labels="text", label="text", zeros=True)


run(write)
