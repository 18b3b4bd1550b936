"""The files of a model, common to both kinds: JSON and plain .npy files with digests, written whole or not at all.

model.json holds: format, version, kind, n_features, classes, problem, certificate, the digests of the other files, and
the digest of all this.  Versions 1 (a linear model, one class against the rest) and 2 (everything else) had no digest
of model.json itself; they are read for ever.  No file contains a time, a host or a path, so the same options give the
same bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bigsvm.config import JOINT_RULE
from bigsvm.errors import BigSVMError, DataError
from bigsvm.files import plain_arrays
from bigsvm.files.atomic import bytes_digest, file_digest, new_directory, read_bytes
from bigsvm.files.file_array import FileArray
from bigsvm.files.paths import check_own_files, no_model_here, not_permitted
from bigsvm.files.rows_file import FILE as ROWS
from bigsvm.files.rows_file import write_rows
from bigsvm.model.probability.calibration_file import FILE as CALIBRATION
from bigsvm.model.probability.calibration_file import write_calibration
from bigsvm.store.identity import digest_of
from bigsvm.store.labels import listed_classes

FORMAT = "bigsvm-model"
FORMAT_VERSION = 3
_UNSEALED = 2
"""The last version whose model.json may lack its own digest."""
MARKS = ("model.json",)
"""Files by which a folder is recognised as a model."""
DAMAGED = "damaged: its digest does not match model.json"
RESTORE = "restore it, or train again"
"""The remedy for a damaged model that is not in a registry."""
_PIECE = 1 << 16  # values that are checked or written at a time


def write_model(
    path: str | Path,
    document: dict[str, Any],
    write_arrays: Callable[[Path], dict[str, str]],
    nbytes: int,
    alpha: Any = None,
    overwrite: bool = False,
) -> None:
    """Write a model directory; `write_arrays(folder)` writes the arrays and returns their digests by file name.

    alpha : callable(file) that writes alpha.npy's bytes in bounded memory, an array, or None
    nbytes : the bytes that will be written, for the error message if the disk is full

    Raises OutputError : the path exists (unless overwrite) or cannot be written.
    """
    with new_directory(Path(path), overwrite, MARKS, "model", nbytes) as folder:
        digests = write_arrays(folder)
        rows = document.get("rows")
        if rows:
            digests[ROWS] = write_rows(folder, rows)
        if document.get("calibration"):
            digests[CALIBRATION] = write_calibration(folder, document["calibration"])
        if isinstance(alpha, np.ndarray | FileArray):
            digests["alpha.npy"] = write_array(folder / "alpha.npy", alpha, np.float64)
        elif alpha is not None:
            with open(folder / "alpha.npy", "xb") as file:
                alpha(file)
            digests["alpha.npy"] = file_digest(folder / "alpha.npy")
        (folder / "model.json").write_text(document_text({**_without_rows(document), "digests": digests}))


def _without_rows(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("rows", "calibration")}


def document_text(document: dict[str, Any]) -> str:
    """The text of model.json: the document with its format, version and digest."""
    whole = {"format": FORMAT, "format_version": FORMAT_VERSION, **document}
    whole["digest"] = _digest(whole)
    return json.dumps(whole, indent=1, sort_keys=True, allow_nan=False) + "\n"


class Document(dict[str, Any]):
    """What model.json holds, without its own digest; and `fingerprint`, the digest of the file's bytes."""

    def __init__(self, held: dict[str, Any], fingerprint: str) -> None:
        super().__init__(held)
        self.fingerprint = fingerprint


def read_document(folder: Path, named: str) -> Document:
    """Read model.json, and return it without its own digest; errors call the folder `named`, as the user did.

    Raises
    ------
    MissingInput : there is no model, or it may not be read. DataError : it is not a bigsvm model, of a newer format,
    damaged, or links to files that lie elsewhere.
    """
    check_own_files(folder, "model")
    try:
        content = read_bytes(folder / "model.json")
    except PermissionError as error:
        raise not_permitted(folder / "model.json", error) from error
    except OSError as error:
        raise no_model_here(folder, named) from error
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"model.json is not JSON: {error}", named) from error
    where = str(folder / "model.json")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError("this is not a bigsvm model", where)
    version = document.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise DataError(
            f"model format version {version!r} is unknown, or newer than the {FORMAT_VERSION} of this program",
            where,
            "upgrade bigsvm",
        )
    _check_digest(document, version, where)
    document.pop("digest", None)
    if not isinstance(document.get("problem", {}), dict):
        raise DataError("model.json lacks a valid 'problem'", where)
    return Document(document, bytes_digest(content))


def model_fingerprint(path: str | Path) -> str:
    """Digest of model.json, which holds the digests of the arrays: 32 hex digits."""
    return file_digest(Path(path) / "model.json")


def check_files(folder: Path, hint: str = "") -> None:
    """Compare every file of a model with its digest, without loading it.

    Raises
    ------
    MissingInput : there is no model, or a file may not be read. DataError : one is missing or not as it was written
    (names it).
    """
    digests = read_document(folder, str(folder)).get("digests")
    if not isinstance(digests, dict):
        raise DataError("model.json lacks the digests of the other files", str(folder), hint)
    for name, digest in digests.items():
        check_file(folder / name, digest, hint)


def check_file(path: Path, digest: Any, hint: str = "") -> None:
    """Hold a file against its digest.

    Raises DataError where it cannot be read, or is not as it was written; MissingInput where this user may not read it.
    """
    try:
        found = file_digest(path)
    except OSError as error:
        raise _cannot_read(path, error, hint) from error
    if found != digest:
        raise DataError(DAMAGED, str(path), hint)


def _cannot_read(path: Path, error: OSError, hint: str = "") -> BigSVMError:
    if isinstance(error, PermissionError):
        return not_permitted(path, error)
    return DataError(f"cannot be read: {error.strerror}", str(path), hint)


def _digest(document: dict[str, Any]) -> str:
    """The digest of model.json without its digest; numbers are formatted as they will be read back."""
    return digest_of({name: value for name, value in document.items() if name != "digest"})


def _check_digest(document: dict[str, Any], version: int, where: str) -> None:
    """Raise DataError if model.json has changed since it was written."""
    if "digest" not in document and version <= _UNSEALED:
        return
    try:
        ours = _digest(document) == document.get("digest")
    except (ValueError, RecursionError):
        ours = False
    if not ours:
        raise DataError("damaged: model.json does not match its own digest", where, RESTORE)


def classes_of(document: dict[str, Any], folder: Path) -> tuple[np.ndarray, bool]:
    """(labels, whether there is one model for each pair of them); no labels for regression.

    Raises DataError, KeyError.
    """
    labels, problem = document["classes"], document.get("problem", {})
    rule = problem.get("multi_class", "ovr")
    if rule not in ("ovr", "ovo", "labels", "") and not (rule == JOINT_RULE and document.get("kind") != "kernel"):
        raise DataError(f"model.json has the unknown multi_class {rule!r}", str(folder / "model.json"))
    if labels == [] and problem.get("regression") is True:
        return np.empty(0), False
    classes = _labels(labels, folder)
    return classes, rule == "ovo" and len(classes) > 2


def _labels(labels: Any, folder: Path) -> np.ndarray:
    """The labels in model.json as an array: all strings, or all numbers.  Raises DataError."""
    kinds = {type(label) for label in labels} if isinstance(labels, list) else set()
    if kinds not in ({str}, {bool}) and not (kinds and kinds <= {int, float}):
        raise DataError("the classes are neither all strings nor all numbers", str(folder / "model.json"))
    try:
        found = listed_classes(labels)
    except OverflowError:
        found = np.empty(0)
    if found.tolist() != labels and kinds <= {int, float}:
        try:
            found = np.array([float(label) for label in labels])
        except OverflowError:
            found = np.empty(0)
    if found.tolist() != labels:  # integers beyond 64 bits must be exact in float64
        raise DataError("a class is a number beyond 64 bits", str(folder / "model.json"))
    if not np.array_equal(found, np.unique(found)):
        raise DataError("the classes are not in ascending order", str(folder / "model.json"))
    return found


def json_labels(classes: np.ndarray) -> list[Any]:
    """Labels as JSON: whole numbers as integers, other numbers as floats, strings and booleans as they are.

    A float64 beyond 2^53 stays a float, because its digits as an integer would be invented.
    """
    return [int(label) if _is_whole(label) else label for label in classes.tolist()]


def _is_whole(label: Any) -> bool:
    return isinstance(label, float) and label.is_integer() and abs(label) < 2**53


def write_array(path: Path, array: np.ndarray | FileArray, dtype: Any = None) -> str:
    """Write a .npy file, converted to `dtype` if one is given; returns its digest.  Memory for a copy is not needed."""
    with open(path, "xb") as file:
        if isinstance(array, FileArray) and dtype in (None, array.dtype):
            described = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, {**described, "shape": array.shape})
            for piece in array.pieces(_PIECE):
                file.write(piece.data)
        else:
            plain_arrays.write_array(file, np.ascontiguousarray(array, dtype=dtype))
    return file_digest(path)


class GrowingArray:
    """A .npy file to which rows are appended; its header is rewritten when the number of rows is known."""

    def __init__(self, path: Path, dtype: np.dtype, *tail: int) -> None:
        self._path, self._dtype, self._tail = path, np.dtype(dtype), tail
        self.n = 0
        self._file: BinaryIO = open(path, "xb")  # noqa: SIM115
        self._file.write(self._header())

    def append(self, rows: np.ndarray) -> None:
        """Append rows, which must have the dtype and shape of the array."""
        if rows.dtype != self._dtype or rows.shape[1:] != self._tail:
            raise ValueError(f"rows {rows.dtype} {rows.shape} of an array {self._dtype} (n, {self._tail})")
        self._file.write(np.ascontiguousarray(rows).data)
        self.n += len(rows)

    def close(self) -> str:
        """Finish the file, and return its digest."""
        self._file.seek(0)
        self._file.write(self._header())
        self._file.close()
        return file_digest(self._path)

    def abandon(self) -> None:
        """Close the file without finishing it."""
        self._file.close()

    def _header(self) -> bytes:
        """The header, padded so that its length does not depend on the number of rows."""
        text = io.BytesIO()
        shape = (self.n, *self._tail)
        described = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(text, described)
        header = text.getvalue()
        # Format version 1.0: magic, version, length of the rest, a dictionary, spaces, a newline.
        return header[:8] + (246).to_bytes(2, "little") + header[10:].rstrip().ljust(245) + b"\n"


def read_array(path: Path, digest: Any) -> np.ndarray:
    """A float64 array in memory, finite.  Raises as `open_array` does."""
    array = np.asarray(open_array(path, digest))
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise DataError(f"has dtype {array.dtype}, or values that are not finite", str(path))
    return array


def open_array(path: Path, digest: Any) -> FileArray:
    """An array that is as it was written, and stays in its file.  Raises DataError, and as `check_file` does."""
    try:
        # A damaged header with a huge shape fails here, before memory is allocated.
        array = FileArray(path)
    except (BigSVMError, MemoryError):
        raise
    except OSError as error:
        raise _cannot_read(path, error) from error
    except Exception as error:  # NumPy parses the header as Python, which fails in many ways
        check_file(path, digest)  # the more telling error where both are wrong
        raise DataError(f"not a plain array: {error}", str(path)) from error
    if array.digest != digest:
        raise DataError(DAMAGED, str(path))
    return array


def is_finite(array: np.ndarray | FileArray) -> bool:
    """Whether all values are finite; a file is read in pieces."""
    if array.dtype.kind != "f":
        return True
    return all(bool(np.isfinite(piece).all()) for piece in _flat_pieces(array))


def _flat_pieces(array: np.ndarray | FileArray) -> Iterator[np.ndarray]:
    if isinstance(array, FileArray):
        yield from array.pieces(_PIECE)
        return
    flat = array.reshape(-1)  # a view, because the arrays of models are C-contiguous
    yield from (flat[at : at + _PIECE] for at in range(0, len(flat), _PIECE))


def is_ascending(array: np.ndarray | FileArray) -> bool:
    """Whether the values are strictly ascending; a file is read in pieces."""
    return all(bool(np.all(np.diff(array[at : at + _PIECE + 1]) > 0)) for at in range(0, len(array), _PIECE))
