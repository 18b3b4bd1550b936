"""The folder of a search: whose it is, and how another search takes its place.

RUN/search.json           the rows, the grid and the options; with a digest
RUN/fits/, RUN/checkpoint/, RUN/found.json      work and result (`kept_fits.py`, `result.py`)
RUN/sizes/, RUN/curve.json      of a learning curve: a folder for each share of the rows, and the result (`sizes.py`)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.atomic import remove, remove_dead, temporary_name
from bigsvm.files.sealed_json import read_sealed, write_sealed
from bigsvm.files.space import cannot_write
from bigsvm.store.identity import first_difference

SEARCH, FOUND, CURVE, FIT, FITS, CHECKPOINT, SIZES = (
    "search.json", "found.json", "curve.json", "fit.json", "fits", "checkpoint", "sizes",
)  # fmt: skip
LOCK = "lock"
"""Held by whoever works on the folder; repeated from `observe/run_files.py`, which stands above."""
_OF_A_FIT = ("events.jsonl", "report.html", "run.json")
"""In the record of a fit beside its lock and checkpoints; repeated from there, too.  The last one goes last."""
_OF_A_SEARCH, _OF_A_CURVE = (FOUND, FITS, CHECKPOINT), (CURVE, SIZES)
_NAMES = {
    FITS: re.compile("[a-z]+(-[0-9]+)*"),
    CHECKPOINT: re.compile("[a-z]+(-[0-9]+)*"),
    SIZES: re.compile("[0-9.e-]+"),
}
_STATE = re.compile("[0-9]{8,}")  # of a fit, in its folder of checkpoints (`run/fit/checkpoint.py`)
_TEMPORARY = ".tmp-"  # in the names of what a killed process left
_HINT = "name another folder; --overwrite deletes that search and begins this one"
_ELSEWHERE = "name a new folder for the search"


def is_search(folder: Path) -> bool:
    """Whether a folder holds a search or a learning curve, finished or not."""
    return (folder / SEARCH).is_file() or (folder / SIZES).is_dir()


def claim(run: Path, document: dict[str, Any], overwrite: bool = False) -> None:
    """Create the folder of a search, or check that it holds this search.

    overwrite : delete the search that it holds, if that is another one or damaged; a folder with things among the fits
        that no search has written is refused

    Raises DataError if the folder holds another search or other things; OutputError.
    """
    file = run / SEARCH
    with _folder(run):
        if (run / SIZES).exists():
            _make_room(run, overwrite, "a learning curve (--sizes)")
        elif file.exists() and ((run / FITS).exists() or (run / CHECKPOINT).exists()):
            differs = _difference(file, document, overwrite)
            if differs is None:
                return
            _make_room(run, overwrite, f"another search: {differs}")
        else:
            _make_room_of_fit(run, overwrite)
            _check_nothing_else(run)
        # A kill before this leaves the record of the former search, of which nothing is done.
        write_sealed(file, document)


def claim_for_curve(run: Path, overwrite: bool = False) -> None:
    """Create the folder of a learning curve, whose shares are searches with folders of their own.

    Raises DataError if the folder holds a search or other things; OutputError.
    """
    with _folder(run):
        if (run / SEARCH).exists():
            _make_room(run, overwrite, "a search without --sizes")
            (run / SEARCH).unlink()
        elif (run / SIZES).exists():
            _check_ours(run)
        else:
            _make_room_of_fit(run, overwrite)
            _check_nothing_else(run)


@contextmanager
def _folder(run: Path) -> Iterator[None]:
    """The folder is there, without what killed processes left; errors of the block name it."""
    try:
        run.mkdir(parents=True, exist_ok=True)
        remove_dead(run)
        yield
    except OSError as error:
        raise cannot_write(run, error) from error


def _difference(file: Path, document: dict[str, Any], overwrite: bool) -> str | None:
    """What differs between the search of this record and `document`.  Raises DataError if the record is damaged."""
    try:
        return first_difference(read_sealed(file), document) or None
    except (ValueError, KeyError, TypeError) as error:
        if overwrite:
            return "damaged"
        raise DataError(f"the record of the search is damaged: {error}", str(file), _HINT) from error


def _make_room(run: Path, overwrite: bool, held: str) -> None:
    """Delete what a search or a curve wrote, except its record.  Raises DataError if that was not asked for.

    A kill in the midst leaves a folder of fits as it was or none: each is renamed before its files go.
    """
    if not overwrite:
        raise DataError(f"the folder holds {held}", str(run), _HINT)
    _check_ours(run)
    for name in _OF_A_SEARCH + _OF_A_CURVE:
        if (run / name).exists():
            going = temporary_name(run / name)
            (run / name).rename(going)
            remove(going)


def _make_room_of_fit(run: Path, overwrite: bool) -> None:
    """Delete the record of a fit, if that is all that the folder holds.  Raises DataError if that was not asked for.

    The model of a search may take the place of a fit's, and both have their folder beside it.
    """
    if not _is_of_fit(run):
        return
    if not overwrite:
        hint = "--overwrite replaces it, or name another folder for the search with --run"
        raise DataError("the folder holds the record of a fit", str(run), hint)
    if (run / CHECKPOINT).exists():
        remove(run / CHECKPOINT)
    for name in _OF_A_FIT:
        (run / name).unlink(missing_ok=True)


def _is_of_fit(run: Path) -> bool:
    """Whether the folder holds the record of a fit and nothing else."""
    there = {path.name for path in run.iterdir()}
    if "run.json" not in there or not there <= {LOCK, CHECKPOINT, *_OF_A_FIT}:
        return False
    if CHECKPOINT in there and not (
        (run / CHECKPOINT).is_dir() and _of_somebody_in(run / CHECKPOINT, CHECKPOINT) is None
    ):
        return False
    try:
        record = json.loads((run / "run.json").read_bytes())
    except ValueError:
        return False
    return isinstance(record, dict) and {"schema_version", "status", "job"} <= record.keys()


def _check_ours(run: Path) -> None:
    """Raise DataError if something that no search has written lies where searches write."""
    if (other := _of_somebody(run)) is not None:
        raise DataError(f"the folder holds other things: {other.relative_to(run)}", str(run), _ELSEWHERE)


def _of_somebody(run: Path) -> Path | None:
    """The first thing where searches write that no search has written; None if there is none.

    The names are plain words that others use, too, so that what is inside decides.
    """
    begun = any((run / name).is_dir() for name in (FITS, CHECKPOINT, SIZES))
    if (run / SEARCH).exists() and not begun and not _is_record(run / SEARCH):
        return run / SEARCH
    for name in (FOUND, CURVE):
        if (run / name).exists() and not (run / name).is_file():
            return run / name
    for name, known in _NAMES.items():
        if not (run / name).is_dir():
            if (run / name).exists():
                return run / name
            continue
        for path in sorted((run / name).iterdir()):
            if _TEMPORARY not in path.name and not (path.is_dir() and known.fullmatch(path.name)):
                return path
            if _TEMPORARY not in path.name and (other := _of_somebody_in(path, name)) is not None:
                return other
    return None


def _of_somebody_in(folder: Path, name: str) -> Path | None:
    """As `_of_somebody`, of one folder in RUN/`name`."""
    if name == FITS:
        return None if (folder / FIT).is_file() else folder
    there = sorted(path for path in folder.iterdir() if _TEMPORARY not in path.name)
    if name == CHECKPOINT:
        return next((path for path in there if not _STATE.fullmatch(path.name)), None)
    known = (LOCK, SEARCH, *_OF_A_SEARCH)
    return next((path for path in there if path.name not in known), None) or _of_somebody(folder)


def _is_record(file: Path) -> bool:
    """Whether it is the record of a search, and whole."""
    try:
        read_sealed(file)
    except ValueError:
        return False
    return True


def _check_nothing_else(run: Path) -> None:
    """Raise DataError if the folder holds files of somebody else."""
    strange = [path for path in run.iterdir() if path.name not in (LOCK, SEARCH)]
    if strange or ((run / SEARCH).exists() and not _is_record(run / SEARCH)):
        raise DataError("the folder holds other things", str(run), _ELSEWHERE)
