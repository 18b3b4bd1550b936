"""HDF5 by h5py: files that look like AnnData, and files that are something else."""

from pathlib import Path

import h5py
from common import rows, run, tell

X, y = rows()


def write(folder: Path) -> None:
    """With filters that HDF5 has, and of other shapes."""
    for name, options in {
        "plain": {}, "lzf": {"compression": "lzf", "shuffle": True}, "sums": {"fletcher32": True, "chunks": True},
        "scaled": {"compression": "gzip", "compression_opts": 9, "shuffle": True},
    }.items():  # fmt: skip
        with h5py.File(folder / f"{name}.h5ad", "w") as file:
            file.create_dataset("X", data=X, **options)
            frame = file.create_group("obs")
            frame.attrs.update({"encoding-type": "dataframe", "column-order": ["label"], "_index": "_index"})
            frame.create_dataset("label", data=y, **options)
        tell(f"{name}.h5ad")
    with h5py.File(folder / "other.h5ad", "w") as file:
        file["data"] = X
    tell("other.h5ad", read=False)
    with h5py.File(folder / "keras.h5", "w") as file:
        file["weights"] = X
    tell("keras.h5", read=False)
    (folder / "text.h5ad").write_text("not HDF5")
    tell("text.h5ad", read=False)


run(write)
