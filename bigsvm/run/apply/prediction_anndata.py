"""Predictions as columns of `obs` in a copy of the AnnData store that was predicted: Zarr or .h5ad.

    obs/prediction            categorical; numbers for regression; sets of labels, as text, if a row may have several
    obs/prediction_score      if scores are asked for, and a row has one score
    obsm/prediction_score     if a row has several scores: a column for each class, or pair of classes

Probabilities are called prediction_proba.  The original store is not changed, and the copy appears when it is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bigsvm.errors import DataError, OutputError, UsageError
from bigsvm.files.atomic import new_directory
from bigsvm.files.outputs import new_output
from bigsvm.files.space import tree_size
from bigsvm.run.apply.gathered import Gathered
from bigsvm.run.apply.prediction_tables import IDENTITY
from bigsvm.store.sealing.manifest import FORMER, STEM
from bigsvm.store.sealing.seal import seal
from bigsvm.store.sealing.verify import verify_store
from bigsvm.store.transforms.label_sets import MOST_SETS, set_text

COLUMN = "prediction"
_ARRAY = {"encoding-type": "array", "encoding-version": "0.2.0"}
_STRINGS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
_CATEGORICAL = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
_DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}
_COPY = 1 << 20


@contextmanager
def anndata_writer(
    out: Path | BinaryIO,
    source: Any,
    classes: np.ndarray,
    n_models: int,
    with_scores: bool,
    overwrite: bool,
    identity: dict[str, Any] | None,
    name: str,
    sets: bool,
) -> Iterator[AnnDataWriter]:
    """A writer of predictions into a copy of `source`, which must be a whole local AnnData store.

    sets : whether a row may have several labels

    Raises
    ------
    UsageError : the source is not AnnData, or rows of it were selected; or `out` has another kind (Zarr or .h5ad).
    DataError : obs has a column of that name already, or cannot be extended.
    OutputError : `out` exists, or cannot be written.
    """
    path = _checked(out, source)
    assert isinstance(out, Path)
    if path.is_file() and (cut := [text for text in classes.tolist() if "\0" in str(text)]):
        what = f"HDF5 cannot hold the label {cut[0]!r}, which has the character NUL"
        raise DataError(what, str(out), "--format parquet, or train with another name of the label (--label-map)")
    if overwrite and out.exists() and not _is_such_a_copy(out):
        raise OutputError(f"has no obs/{COLUMN}, so --overwrite will not replace it", str(out), "choose another name")
    options = (source.n_samples, classes, n_models, with_scores, identity, name, str(path), sets)

    def need(written: int) -> str:
        return f"more than {max(tree_size(path), written)} bytes"

    if path.is_dir():
        with new_directory(out, overwrite, ("zarr.json", ".zgroup"), "Zarr store", need) as folder:
            yield from _into_zarr(path, folder, options)
        return
    with new_output(out, overwrite, need) as file:
        with open(path, "rb") as read:
            shutil.copyfileobj(read, file, _COPY)
        file.flush()
        import h5py

        with h5py.File(file.name, "r+") as root:
            writer = AnnDataWriter(root, *options)
            yield writer
            writer.close()


def _checked(out: Path | BinaryIO, source: Any) -> Path:
    """The path of the store to copy.  Raises UsageError."""
    if isinstance(source, str) or not isinstance(out, Path):
        raise UsageError("format anndata copies a store on a local disk: neither text nor a stream will do")
    path = Path(source.uri)
    is_h5 = path.is_file() and path.suffix.lower() == ".h5ad"
    if not is_h5 and not (path.is_dir() and (path / "obs").is_dir()):
        raise UsageError(
            "is not AnnData, so there is no obs for predictions", source.uri, "use --format parquet or zarr"
        )
    if getattr(source, "store_rows", None) is not None:
        raise UsageError("the copy would also hold the rows that --rows leaves out", source.uri, "leave out --rows")
    if is_h5 != (out.suffix.lower() == ".h5ad"):
        kind = "an .h5ad file" if is_h5 else "a Zarr folder"
        hint = f"call the output {out.with_suffix('.h5ad' if is_h5 else '.zarr').name}"
        raise UsageError(f"the copy of {kind} must be {kind}", str(out), hint)
    return path


def _is_such_a_copy(out: Path) -> bool:
    """Whether `out` is a copy with predictions, so that replacing it loses no original data."""
    if out.is_dir():
        return (out / "obs" / COLUMN).exists()
    import h5py

    try:
        with h5py.File(out, "r") as root:
            return f"obs/{COLUMN}" in root
    except OSError:
        return False


def _into_zarr(path: Path, folder: Path, options: tuple[Any, ...]) -> Iterator[AnnDataWriter]:
    import zarr

    sealed = (path / f"{STEM}.json").exists()
    _copy_store(path, folder)
    if sealed and (bad := verify_store(folder)["bad"]):
        what = "has changed since it was sealed, or while it was copied"
        raise DataError(what, f"{path}/{bad[0]}", f"check it with bigsvm verify {path}")
    root = zarr.open_group(folder, mode="r+", use_consolidated=False)
    writer = AnnDataWriter(root, *options)
    yield writer
    writer.close()
    if _consolidated(folder):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns that its format 3 does not specify string arrays yet
            zarr.consolidate_metadata(str(folder))
    if sealed:
        seal(folder)


def _copy_store(source: Path, target: Path) -> None:
    """Copy the files of a store.  Raises OSError at the first failure; `shutil.copytree` would go on to the end."""

    def failed(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(source, onerror=failed, followlinks=True):
        folders[:] = [name for name in folders if name != FORMER]
        to = target / os.path.relpath(folder, source)
        to.mkdir(exist_ok=True)
        for name in names:
            if not name.endswith(".lock"):
                shutil.copy2(os.path.join(folder, name), to / name)


def _consolidated(folder: Path) -> bool:
    """Whether the store has consolidated metadata, which must then name the new arrays."""
    with contextlib.suppress(FileNotFoundError):
        return json.loads((folder / "zarr.json").read_bytes()).get("consolidated_metadata") is not None
    return (folder / ".zmetadata").exists()


class AnnDataWriter(Gathered):
    """Writes predictions in order, as a `prediction_files.Writer`.  root : a writable AnnData group (zarr or h5py)"""

    def __init__(
        self, root: Any, n_samples: int, classes: np.ndarray, n_models: int, with_scores: bool,
        identity: dict[str, Any] | None, name: str, where: str, sets: bool,
    ) -> None:  # fmt: skip
        super().__init__(n_models, with_scores, sets)
        self._root, self._classes, self._where, self._start = root, classes, where, 0
        self._is_h5 = hasattr(root, "create_dataset") and type(root).__module__.startswith("h5py")
        self._regression = len(classes) == 0
        self._sets: dict[bytes, int] = {}
        several = with_scores and n_models > 1
        score = f"{COLUMN}_{name}"
        columns = [COLUMN, *([score] if with_scores and not several else [])]
        obs = self._frame(n_samples, columns)
        self._beside: Any = None
        if several:
            obsm = root["obsm"] if "obsm" in root else self._group(root, "obsm", _DICT)
            if score in obsm:
                raise DataError(f"obsm has {score} already", where, "predict the original store instead")
            self._beside = self._array(obsm, score, (n_samples, n_models), np.float64)
        elif with_scores:
            self._beside = self._array(obs, score, (n_samples,), np.float64)
        if self._regression:
            self._column = self._array(obs, COLUMN, (n_samples,), np.float64)
            node = self._column
        else:
            node = self._group(obs, COLUMN, _CATEGORICAL)
            self._column = self._array(node, "codes", (n_samples,), np.int32)
        if identity is not None:
            node.attrs[IDENTITY] = json.dumps(identity)
        self._node = node

    def _frame(self, n_samples: int, columns: list[str]) -> Any:
        """obs, with the new columns appended to its column order."""
        obs = self._root["obs"]
        index = obs.attrs.get("_index", "_index") if hasattr(obs, "keys") else None
        if index is None or index not in obs or not hasattr(obs, "attrs") or "column-order" not in obs.attrs:
            hint = "write it again with a current anndata"
            raise DataError("obs has an older encoding, to which no column can be added", self._where, hint)
        held = obs[index] if hasattr(obs[index], "shape") else obs[index]["values"]
        if held.shape != (n_samples,):
            raise DataError(f"obs has {held.shape[0]} rows, but {n_samples} were predicted", self._where)
        for name in columns:
            if name in obs:
                raise DataError(f"obs has a column {name} already", self._where, "predict the original store instead")
        order = [*(name.decode() if isinstance(name, bytes) else str(name) for name in obs.attrs["column-order"])]
        order += columns
        if self._is_h5:
            import h5py

            obs.attrs.create("column-order", order, dtype=h5py.string_dtype())
        else:
            obs.attrs["column-order"] = order
        return obs

    def _group(self, parent: Any, name: str, attributes: dict[str, Any]) -> Any:
        group = parent.create_group(name)
        group.attrs.update(attributes)
        return group

    def _array(self, parent: Any, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        chunks = (max(1, min(self.piece_rows, shape[0])), *shape[1:])
        make = parent.create_dataset if self._is_h5 else parent.create_array
        # Dense arrays are written up to the last chunk, even if it is empty, as anndata's readers expect.
        more = {"compression": "gzip"} if self._is_h5 else {"config": {"write_empty_chunks": True}}
        array = make(name, shape=shape, dtype=dtype, chunks=chunks, **more)
        array.attrs.update(_ARRAY)
        return array

    def write(self, codes: np.ndarray, scores: np.ndarray) -> None:
        rows = slice(self._start, self._start + len(scores))
        self._start = rows.stop
        if self._regression:
            self._column[rows] = scores[:, 0]
        else:
            self._column[rows] = (self._coded(codes) if codes.ndim == 2 else codes).astype(np.int32)
        if self._beside is not None:
            self._beside[rows] = scores if self._beside.ndim == 2 else scores[:, 0]

    def _coded(self, indicator: np.ndarray) -> np.ndarray:
        """The code of each row's set of labels; sets are numbered as they first occur."""
        packed = np.packbits(indicator != 0, axis=1)
        found = np.array([self._sets.setdefault(row.tobytes(), len(self._sets)) for row in packed])
        if len(self._sets) > MOST_SETS:
            what = f"more than {MOST_SETS} different sets of labels are predicted, too many for one column"
            raise DataError(what, self._where, "--format parquet")
        return found

    def close(self) -> None:
        super().close()
        if self._start != self._column.shape[0]:
            raise DataError(f"only {self._start} of {self._column.shape[0]} rows were predicted", self._where)
        if self._regression:
            return
        names = self._classes
        if self._sets:
            labels = [str(label) for label in names.tolist()]
            bits = [np.unpackbits(np.frombuffer(key, np.uint8))[: len(labels)] for key in self._sets]
            names = np.array([set_text([labels[k] for k in np.flatnonzero(row)]) for row in bits])
        self._categories(names if names.dtype.kind in "biuf" else names.astype(object))

    def _categories(self, names: np.ndarray) -> None:
        if names.dtype != object:
            made = self._array(self._node, "categories", names.shape, names.dtype)
            made[:] = names
            return
        if self._is_h5:
            import h5py

            made = self._node.create_dataset("categories", data=names, dtype=h5py.string_dtype())
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = self._node.create_array("categories", shape=names.shape, chunks=names.shape, dtype="string")
            made[:] = names
        made.attrs.update(_STRINGS)
