"""Changes of a registry: promote a model, go back to an earlier one, finish a broken change, delete versions."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Literal

from bigsvm.errors import DataError, MissingInput, OutputError
from bigsvm.events import Emit, silent
from bigsvm.files.atomic import new_directory
from bigsvm.files.space import cannot_write
from bigsvm.model.linear_model import Model
from bigsvm.model.versions.held import held_registry
from bigsvm.model.versions.history_file import announce, history
from bigsvm.model.versions.layout import PENDING, VERSIONS, is_there, version_folder, version_numbers
from bigsvm.model.versions.reading import current_version, next_version, refuse_a_link, unrecorded, version_before
from bigsvm.model.versions.swap import swap
from bigsvm.model.versions.whole_models import check_model, shape_difference


class CurrentMoved(OutputError):
    """Another version is current than the one that the new model was compared with."""


def promote(
    registry: str | Path,
    model_path: str | Path,
    note: str = "",
    *,
    metrics: dict[str, Any] | None = None,
    allow_other_shape: bool = False,
    over: int | Literal["any"] | None = "any",
    emit: Emit = silent,
) -> int:
    """Copy a model into the registry and make it current.

    Parameters
    ----------
    registry : folder; created if it does not exist
    note, metrics : a line of text, and JSON figures, for the history
    allow_other_shape : accept a model whose classes or number of features differ from the current model's
    over : promote only if this version (None: no version) is still current; the one that the model was compared with
    emit : receives a message if another process is changing the registry, and this one waits

    Returns the new version's number.

    Raises
    ------
    MissingInput : there is no model.
    DataError : the model is damaged, has values that are not finite, or has another shape than the current one.
    OutputError : the registry cannot be written.
    CurrentMoved : another version than `over` is current.

    In all these cases the current model stays.
    """
    root, source = Path(registry), Path(model_path)
    model = check_model(source)
    with held_registry(root, emit, create=True):
        former = current_version(root)
        if over not in ("any", former):
            compared, now = ("no model" if each is None else f"version {each}" for each in (over, former))
            raise CurrentMoved(f"was compared with {compared}, and {now} is current now", str(source))
        if former is not None and not allow_other_shape:
            if not is_there(root, former):
                what = f"the current version {former} is not there, so features and classes cannot be compared with it"
                hint = f"bigsvm rollback {root} --to N first, or use --allow-other-shape"
                raise DataError(what, str(root), hint)
            difference = shape_difference(model, check_model(version_folder(root, former)))
            if difference:
                raise DataError(difference, str(source), "use --allow-other-shape if you mean it")
        version = next_version(root)
        folder = version_folder(root, version)
        try:
            # Said before anything is copied: a copy that a killed process leaves is told by it from a version whose
            # line in the history was lost.
            announce(root, "promote", version, note, metrics)
            with new_directory(folder, nbytes=_model_bytes(source, model)) as copy:
                _copy_model(source, model, copy)
                # The source may have changed since it was checked, so check the copy.
                if check_model(copy).about["digests"] != model.about["digests"]:
                    raise DataError("the model changed while it was read", str(source), "repeat the command")
            swap(root, "promote", version, former, note, metrics)
        except BaseException:
            if current_version(root) != version:
                shutil.rmtree(folder, ignore_errors=True)
                (root / PENDING).unlink(missing_ok=True)
            raise
    return version


def rollback(registry: str | Path, to: int | None = None, note: str = "", *, emit: Emit = silent) -> int:
    """Make an earlier version current again, byte for byte; returns its number.

    Parameters
    ----------
    to : a version; None: the one that was current before, so that a second rollback goes back further
    emit : as for `promote`

    Raises
    ------
    MissingInput : there is no such version.  DataError : it is damaged.  In both cases the current model stays.
    """
    root = Path(registry)
    with held_registry(root, emit):
        former = current_version(root)
        to = version_before(root) if to is None else to
        folder = version_folder(root, to)
        if not is_there(root, to):
            raise MissingInput(f"there is no version {to}", str(root), f"see bigsvm history {root}")
        if to not in (entry["version"] for entry in history(root)):
            raise MissingInput(f"the history has no version {to}", str(root), unrecorded(root, to))
        refuse_a_link(folder)
        check_model(folder)
        if to != former:
            swap(root, "rollback", to, former, note)
    return to


def settle(registry: str | Path, emit: Emit = silent) -> None:
    """Finish a change whose process died, so that the history agrees with the link.  Raises OutputError."""
    root = Path(registry)
    if (root / VERSIONS).is_dir():
        with held_registry(root, emit):
            pass


def prune(registry: str | Path, keep: int, emit: Emit = silent) -> list[int]:
    """Delete all but the `keep` newest versions; the current one, and the one that a rollback goes to, always stay.

    Returns the numbers of the deleted versions, ascending.  A version without model.json counts as deleted; what an
    interrupted deletion left is removed here.  Raises MissingInput, OutputError.
    """
    root = Path(registry)
    with held_registry(root, emit):
        numbers = version_numbers(root)
        there = [number for number in numbers if is_there(root, number)]
        stay = {*there[max(len(there) - max(keep, 0), 0) :], current_version(root)}
        try:
            stay.add(version_before(root))
        except MissingInput:
            pass
        gone = [number for number in numbers if number not in stay]
        for number in gone:
            folder = version_folder(root, number)
            try:
                if folder.is_symlink():
                    folder.unlink()
                    continue
                (folder / "model.json").unlink(missing_ok=True)
                shutil.rmtree(folder)
            except OSError as error:
                raise cannot_write(folder, error) from error
    return gone


def _model_bytes(source: Path, model: Model) -> int | None:
    """The bytes of the files of a model; None if one has just been taken away, which `_copy_model` reports."""
    try:
        return sum((source / name).stat().st_size for name in ["model.json", *model.about["digests"]])
    except OSError:
        return None


def _copy_model(source: Path, model: Model, copy: Path) -> None:
    """Copy model.json and the files that it names; read-only, because a version never changes."""
    for name in ["model.json", *model.about["digests"]]:
        with open(source / name, "rb") as reading, open(copy / name, "xb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 20)
            os.fchmod(writing.fileno(), os.fstat(writing.fileno()).st_mode & 0o444)
