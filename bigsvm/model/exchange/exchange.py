"""Export to and import from the formats of other programs: `bigsvm.export_model` and `bigsvm.import_model`."""

from __future__ import annotations

import dataclasses
import io
import os
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np

from bigsvm.errors import DataError, MissingInput, UsageError
from bigsvm.files.atomic import file_digest, open_regular
from bigsvm.files.outputs import check_apart, check_plain_output, new_output
from bigsvm.model.exchange import liblinear, libsvm, libsvm_read, npz, onnx
from bigsvm.model.exchange.text_model import Lines
from bigsvm.model.linear_model import LinearModel, Model, load_model
from bigsvm.units import counted

Exported = Literal["onnx", "liblinear", "libsvm", "npz"]
Imported = Literal["liblinear", "libsvm", "npz"]
_WRITERS: dict[str, Any] = {
    "onnx": onnx.write, "liblinear": liblinear.write, "libsvm": libsvm.write, "npz": npz.write,
}  # fmt: skip
_TEXT = {"liblinear": liblinear.NAME, "libsvm": libsvm.NAME}
_SUFFIXES = {".onnx": "onnx", ".npz": "npz"}
UNPROVED = {"kind": "none"}
"""The certificate of an imported model: nothing is proved about it."""


def export_model(
    model: str | Path | Model, path: str | Path | BinaryIO, format: Exported | None = None, *, overwrite: bool = False
) -> dict[str, Any]:
    """Write a model in the format of another program.

    Parameters
    ----------
    model : the folder of a model, or a model from `bigsvm.load_model`
    path : the file to write, or a binary file object such as `sys.stdout.buffer`
    format : 'onnx', 'liblinear', 'libsvm' or 'npz'; None: from the suffix of `path`, .onnx or .npz

    Returns `output`, `format`, `bytes`, and `warnings` (the parts of the model that the format does not hold).

    Raises
    ------
    UsageError : the format cannot hold this model (the hint names one that can), or `onnx` is not installed.
    OutputError : the output exists (unless overwrite) or cannot be written.
    MissingInput, DataError : there is no model, or it is damaged.
    """
    out = Path(path) if isinstance(path, str | os.PathLike) else None
    chosen = format or (_SUFFIXES.get(out.suffix) if out else None)
    if chosen not in _WRITERS:
        what = (
            f"unknown format {chosen!r}"
            if chosen
            else f"{out.name if out else '-'!r} has no suffix that names a format"
        )
        raise UsageError(what, hint=f"--format: one of {', '.join(get_args(Exported))}")
    if isinstance(model, str | os.PathLike):
        if out:
            check_apart({"the output": out}, {"the model": model})
        model = load_model(model)
    if model.multi_label:
        what = f"{chosen} cannot hold a model with several labels for a row"
        raise UsageError(what, hint="coef.npy and intercept.npy in the folder of the model have one row for each label")
    if out is None:
        opened: Any = path
        _WRITERS[chosen](opened, model)
        return {"output": "-", "format": chosen, "bytes": None, "warnings": _lost(model, chosen)}
    check_plain_output(out, overwrite)
    with new_output(out, overwrite, lambda _: f"{_size(chosen, model)} bytes") as file:
        _WRITERS[chosen](file, model)
        file.flush()
        nbytes = file.tell() if file.seekable() else None
    return {"output": str(out), "format": chosen, "bytes": nbytes, "warnings": _lost(model, chosen)}


class _Counter(io.RawIOBase):
    """A file that takes everything and keeps nothing but its size."""

    def __init__(self) -> None:
        self.nbytes = self._at = 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self.nbytes)[whence]
        return self._at

    def write(self, content: Any) -> int:
        size = memoryview(content).nbytes
        self._at += size
        self.nbytes = max(self.nbytes, self._at)
        return size


def _size(format: str, model: Model) -> int:
    """The bytes of the output, for a disk that had no room for them."""
    counter = _Counter()
    _WRITERS[format](counter, model)
    return counter.nbytes


def _lost(model: Model, format: str) -> list[str]:
    """Warnings: one line for each part of the model that the format leaves out and that changes predictions."""
    found = []
    if format in _TEXT and "calibration" in model.about:
        found.append(
            f"the probabilities (--calibrate {model.about['calibration']['method']}) are left out, because "
            f"{_TEXT[format]}'s format cannot hold them; scores and labels are kept (--format onnx or npz keeps all)"
        )
    columns = (model.about.get("rows", {}).get("encoding") or {}).get("columns", [])
    if format != "npz" and any(kind != "number" for _, kind, _ in columns):
        found.append(
            f"the encoding of text columns is left out: the file takes the {model.n_features} features, in the "
            "order of the training rows, instead of the columns (--format npz keeps all)"
        )
    if format == "onnx" and onnx.digits_are_lost(model):
        found.append(
            "the support vectors lie so far apart that scores of the graph may differ in significant digits: "
            "train on scaled rows (--scale maxabs)"
        )
    return found


def import_model(
    file: str | Path,
    format: Imported | None = None,
    *,
    C: float | None = None,
    epsilon: float | None = None,
    n_features: int | None = None,
) -> Model:
    """Read a model that LIBLINEAR or LIBSVM wrote as text, or that `export_model` wrote as npz.

    `.save(folder)` writes it as a bigsvm model.  A model of LIBLINEAR or LIBSVM has no certificate, and says so; if it
    is linear and C is known, `bigsvm certify` can compute its gap on its training rows.  An npz gives back the exported
    model with everything except its dual variables, which are not in the file.

    Parameters
    ----------
    format : 'liblinear', 'libsvm' or 'npz'; None: npz if `file` has that suffix
    C, epsilon : the values of -c and -p with which the program was called; its file does not record them
    n_features : number of features of rows to be scored; None: as in the file, or for LIBSVM the highest feature of a
        support vector

    Returns the model.  For other programs `.about["imported"]` says which program wrote it, and what was left out.

    Raises
    ------
    MissingInput : there is no such file.
    DataError : the file is not a model of that program; names the line.
    UsageError : an argument is out of range.
    """
    format = format or ("npz" if Path(file).suffix == ".npz" else None)
    if format not in get_args(Imported):
        what = f"unknown format {format!r}" if format else f"{Path(file).name!r} has no suffix that names a format"
        raise UsageError(what, hint=f"--format: one of {', '.join(get_args(Imported))}")
    if C is not None and not 0 < C < np.inf:
        raise UsageError(f"C must be a positive number, not {C!r}")
    if epsilon is not None and not 0 <= epsilon < np.inf:
        raise UsageError(f"epsilon must be a number that is not negative, not {epsilon!r}")
    path = Path(file)
    if format == "npz":
        if any(value is not None for value in (C, epsilon, n_features)):
            raise UsageError("an npz records how its model was trained", hint="leave out C, epsilon and n_features")
        try:
            with open(open_regular(path), "rb") as arrays:
                return npz.read(arrays, path)
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror or error}", str(path)) from error
    try:
        digest = file_digest(path)
        with open(open_regular(path), "rb") as text:
            lines = Lines(text, str(path))
            found: tuple[Any, list[str]]
            found = liblinear.read(lines) if format == "liblinear" else libsvm_read.read(lines, n_features)
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror or error}", str(path)) from error
    model, warnings = found
    if n_features is not None and model.n_features != n_features:
        model = _widened(model, n_features, str(path))
    if epsilon is not None and not model.regression:
        raise UsageError("epsilon is for a regression, and this model has classes")
    problem = {
        **model.about["problem"],
        "class_weight": [1.0] * max(len(model.classes), 1),
        **({} if C is None else {"C": [float(C)] * model.n_models}),
        **({} if epsilon is None else {"epsilon": float(epsilon)}),
    }
    if isinstance(model, LinearModel):
        problem["kernel"] = "linear"
    imported = {**model.about["imported"], "format": format, "file": path.name, "file_digest": digest}
    about = {"problem": problem, "status": "imported", "certificate": UNPROVED}
    return dataclasses.replace(model, about={**about, "imported": {**imported, "warnings": warnings}})


def _widened(model: Model, n_features: int, where: str) -> Model:
    """The linear model with zero weights added up to `n_features`.  Raises DataError if it has more already."""
    if not isinstance(model, LinearModel) or n_features < model.n_features:
        raise DataError(f"the model has {counted(model.n_features, 'feature')}, and {n_features} were asked for", where)
    coef = np.zeros((model.n_models, n_features))
    coef[:, : model.n_features] = model.coef
    return dataclasses.replace(model, coef=coef)
