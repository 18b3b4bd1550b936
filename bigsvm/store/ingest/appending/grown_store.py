"""A store to which rows are appended: new and changed files are written to a folder aside.

Full chunks stay as they are.  The last chunk of each array is read back, filled up and written again.  So the result
has the same chunks as if all rows had been ingested at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from bigsvm.errors import DataError, MissingInput, OutputError
from bigsvm.files.atomic import remove, temporary_name
from bigsvm.files.space import cannot_write
from bigsvm.store.content import badness
from bigsvm.store.formats.chunked import ChunkedArray
from bigsvm.store.formats.zarr_names import columns_of, feature_names, recipe_of, split_of
from bigsvm.store.ingest.chunk_files import ChunkFiles
from bigsvm.store.ingest.label_spool import LabelSpool
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from bigsvm.store.labels import alike, as_labels, label_codes, normal_classes
from bigsvm.store.sealing.manifest import Manifest, load_manifest
from bigsvm.store.sealing.places import naming
from bigsvm.store.sealing.seal import verify_documents
from bigsvm.store.sealing.verified import VerifyingStore

_PIECE = 1 << 18  # codes that are read at a time
_OURS = ("X", "X/data", "X/indices", "X/indptr", "obs/label", "obs/label/codes", "obs/label/categories", "obs/weight",
         "obs/_index", "var/_index")  # fmt: skip


class SealedStore:
    """A store that `ingest` wrote, before rows are appended.  Every byte that is read is verified with its manifest.

    Raises
    ------
    MissingInput : there is no store.  DataError : it is not sealed, is damaged, or holds what `ingest` does not write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with naming(path):
            self._open(path)

    def _open(self, path: Path) -> None:
        if not path.is_dir():
            raise MissingInput("no store to append to", str(path), "leave out --append to make a new store")
        try:
            self.manifest: Manifest = load_manifest(path)
        except FileNotFoundError:
            hint = f"bigsvm ingest {path} NEW.zarr converts it"
            raise DataError("rows can be appended only to sealed stores of bigsvm ingest", str(path), hint) from None
        verify_documents(path, self.manifest)
        store = VerifyingStore(LocalStore(path, read_only=True), self.manifest)
        self._group = zarr.open_group(store, mode="r", use_consolidated=False)
        content = self.manifest.content
        foreign = sorted(set(_arrays(self.manifest)) - set(_OURS))
        if foreign or "content_fingerprint" not in content or self._group.metadata.zarr_format != 3:
            what = f"holds {foreign[0]}, which the new rows would lack" if foreign else "is not as ingest wrote it"
            raise DataError(f"the store {what}", str(path), f"bigsvm ingest {path} NEW.zarr makes a store to append to")
        self.n_samples, self.nnz = int(content["n_samples"]), int(content["nnz"])
        self.n_features, self.layout, self.task = int(content["n_features"]), content["layout"], content["task"]
        self.has_weights = "obs/weight" in self._group
        self.recipe, self.split = recipe_of(self._group), split_of(self._group)
        self.columns = columns_of(self._group)
        self.feature_names = feature_names(self._group, "var", self.n_features, self.array)
        matrix = self.array("X" if self.layout == "dense" else "X/data")
        self.dtype, self.codec = matrix.dtype, self.codec_of("X" if self.layout == "dense" else "X/data")
        # If an array has one chunk, which is cut to its length, the intended size of chunks is unknown.
        several = len(matrix) > matrix.unit_rows
        row_bytes = matrix.dtype.itemsize * int(np.prod(matrix.shape[1:], dtype=np.int64))
        self.chunk_bytes = matrix.unit_rows * row_bytes if several else None

    def array(self, path: str) -> ChunkedArray:
        with naming(self.path):
            return _ToldArray(self._group[path], path, self.path, self.manifest)

    def codec_of(self, path: str) -> str:
        """The codec of an array, by its name in `ingest --codec`."""
        codecs: Any = self._group[path].metadata.to_dict()["codecs"]
        return str(codecs[1]["configuration"]["cname"]) if len(codecs) > 1 else "none"

    @property
    def classes(self) -> np.ndarray | None:
        """The labels, ascending; None for targets."""
        if self.task == "regression":
            return None
        found = self.array("obs/label/categories")
        return normal_classes(as_labels(found.read(0, len(found)), f"{self.path}/obs/label"))

    def chunks_of(self, path: str, n: int, two: bool) -> Iterator[str]:
        """The digests of the first n chunks of an array."""
        for number in range(n):
            key = f"{path}/c/{number}" + ("/0" if two else "")
            found = self.manifest.lookup(key)
            if found is None or len(found) != 32:
                raise DataError("the chunk is missing from the manifest", f"{self.path}/{key}", "run: bigsvm verify")
            yield found


class _ToldArray(ChunkedArray):
    """An array whose errors name the store that it is in: whoever reads it has other stores open, too."""

    def read(self, start: int, stop: int) -> np.ndarray:
        with naming(self._root_name):
            return super().read(start, stop)


class GrownStore(ZarrWriter):
    """A `ZarrWriter` for rows that follow those of `former`; the store itself is not touched.

    `root` is a folder with the new and changed files, and a complete manifest; `commit.py` moves them into the store.
    """

    def __init__(self, former: SealedStore, chunk_bytes: int | None, source_digest: str | None = None) -> None:
        super().__init__(
            former.path, layout=former.layout, dtype=former.dtype, n_features=former.n_features, codec=former.codec,
            chunk_bytes=chunk_bytes or former.chunk_bytes, has_weights=former.has_weights, task=former.task,
            recipe=former.recipe, feature_names=former.feature_names, split=former.split, columns=former.columns,
        )  # fmt: skip
        self.former, self._source_digest = former, source_digest
        self.n_samples, self.nnz = former.n_samples, former.nnz
        self._hash.total = int(former.manifest.content["content_fingerprint"], 16)
        self._width = former.n_features

    def __enter__(self) -> GrownStore:
        self._root = self.root = temporary_name(self.path.resolve())
        self._labels = None
        try:
            self._root.mkdir()
            self._begin()
        except BaseException as error:
            self._leave(error)
            if isinstance(error, OSError):
                raise cannot_write(self.path, error) from error
            raise
        return self

    def _begin(self) -> None:
        if self.layout == "csr":
            for name in ("data", "indices", "indptr"):
                self._open(f"X/{name}", self.former.array(f"X/{name}").dtype)
        else:
            self._open("X", self.dtype, width=self.n_features)
        if self.has_weights:
            self._open("obs/weight", np.dtype(np.float64))
        self._labels = LabelSpool(self._root / ".codes.tmp", str(self.path)) if self.task == "classification" else None
        if self._labels is None:
            self._open("obs/label", np.dtype(np.float64))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        """Discard the files; an error names the store instead of the folder aside, which no longer exists."""
        if self._labels is not None:
            self._labels.close()
        remove(self._root)
        if isinstance(error, OutputError) and Path(error.where).is_relative_to(self._root):
            error.where = str(self.path)

    def place(self) -> None:
        """None: workers write whole chunks only, and here the first one begins in the middle of a chunk."""

    def _open(self, path: str, dtype: np.dtype, width: int | None = None) -> ChunkFiles:
        files = super()._open(path, dtype, width)
        if path != "obs/label/codes":
            self._resume(files)
        return files

    def _resume(self, files: ChunkFiles) -> None:
        """Continue an array with chunks of its size; if it has only one chunk, with chunks of the default size."""
        former, array = self.former, self.former.array(files.path)
        n, rows = len(array), array.unit_rows if len(array) > array.unit_rows else files.chunk_rows
        full = n // rows if len(array) > array.unit_rows else 0
        digests = former.chunks_of(files.path, full, files.width is not None)
        files.resume(n, rows, digests, array.read(full * rows, n))

    def _finish_labels(self, labels: LabelSpool) -> tuple[np.ndarray, list[int]]:
        """Append the codes of the new rows; if there are new classes, all codes are written again."""
        known, new = self.former.classes, labels.classes()
        assert known is not None
        try:
            classes = normal_classes(np.union1d(*alike(known, new)))
        except DataError as error:
            raise DataError(f"labels of the store and of the new rows: {error.what}", str(self.path)) from error
        codes = super()._open("obs/label/codes", label_codes(classes[:1], classes).dtype)
        if np.array_equal(classes, known):
            self._resume(codes)
        else:
            array, places = self.former.array("obs/label/codes"), label_codes(known, classes)
            for start in range(0, len(array), _PIECE):
                codes.append(places[array.read(start, min(start + _PIECE, len(array)))])
        labels.finish(lambda _: _Coded(codes, label_codes(new, classes)))
        counts = np.zeros(len(classes), np.int64)
        for names, found in ((known, self.former.manifest.content["class_counts"]), (new, labels.counts())):
            counts[label_codes(names, classes)] += np.array(found, np.int64)
        return classes, counts.tolist()

    def _scale_summary(self) -> dict[str, object]:
        """The worse of the old rows' and the new rows' scales, with the rows that it is of.

        That of all rows needs the largest value of each column, of which a manifest has no more than some quantiles,
        and a warning is not worth reading the old rows again.
        """
        old, new = self.former.manifest.content.get("column_scale") or {}, super()._scale_summary()
        n = self.former.n_samples
        parts = [{"rows": [0, n], **old}] if old else []
        parts += [{**new, "rows": [n, self.n_samples]}] if new else []
        return max(parts, key=badness) if parts else {}

    def _more_content(self) -> dict[str, Any]:
        """The content before the append, by which a model of the first rows is recognised; and the new content."""
        content = self.former.manifest.content
        before = {
            "n_samples": content["n_samples"],
            "content_fingerprint": content["content_fingerprint"],
            "added": self._source_digest,
        }
        return {"parts": [*content.get("parts", ()), before]}


class _Coded:
    """Translates codes among some classes to codes among more, and passes them on."""

    def __init__(self, codes: ChunkFiles, places: np.ndarray) -> None:
        self._codes, self._places = codes, places

    def append(self, values: np.ndarray) -> None:
        self._codes.append(self._places[values])


def _arrays(manifest: Manifest) -> Iterator[str]:
    """Paths of the arrays in a store: documents below which there is no other document."""
    folders = {key.rpartition("/")[0] for key in manifest.documents}
    for folder in folders - {""}:
        if not any(other.startswith(f"{folder}/") for other in folders):
            yield folder
