"""A registry: numbered versions of a model on disk, one of which is current.

    REGISTRY/versions/000001/   a copied model directory, never changed again
    REGISTRY/current            relative symlink to one of them, swapped by one rename
    REGISTRY/history.jsonl      one line for each change: who, when, what, from which version
    REGISTRY/.pending.json      the history line of a change that is in progress
    REGISTRY/.lock              held (flock) by the process that changes the registry

The link decides which version is current.  A reader calls `current(registry)` once and loads the folder that it names.
Versions are never moved or changed, so the reader sees one complete model, whatever happens meanwhile.  After a crash
the link names either the old or the new version; the next change removes leftovers, and adds a missing line to the
history.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from bigsvm.errors import DataError, MissingInput, OutputError
from bigsvm.events import WAITING, Emit, WorkEnded, WorkStarted, silent
from bigsvm.files.atomic import cannot_write, new_directory, sync_directory, temporary_name, write_bytes
from bigsvm.files.locks import is_that, sign, unsign, wait_for
from bigsvm.files.paths import check_here, check_outside_stores
from bigsvm.files.undisturbed import it_is_done, undisturbed
from bigsvm.model.linear_model import Model
from bigsvm.model.whole_models import check_model, model_fingerprint, shape_difference

CURRENT, HISTORY, LOCK, PENDING, VERSIONS = "current", "history.jsonl", ".lock", ".pending.json", "versions"
_LINK = re.compile(rf"{VERSIONS}/([0-9]{{6,}})")
_LITTER = ".*.tmp-*"
_LOOKS = 100  # for a lock, while others take it away with the registry that they could not make


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
    with _changing(root, emit, create=True):
        former = current_version(root)
        if over not in ("any", former):
            compared, now = ("no model" if each is None else f"version {each}" for each in (over, former))
            raise CurrentMoved(f"was compared with {compared}, and {now} is current now", str(source))
        if former is not None and not allow_other_shape:
            if not is_there(root, former):
                what = f"the current version {former} is not there, so features and classes cannot be compared with it"
                hint = f"bigsvm rollback {root} --to N first, or use --allow-other-shape"
                raise DataError(what, str(root), hint)
            difference = shape_difference(model, check_model(_folder(root, former)))
            if difference:
                raise DataError(difference, str(source), "use --allow-other-shape if you mean it")
        version = _next_version(root)
        folder = _folder(root, version)
        with new_directory(folder) as copy:
            _copy_model(source, model, copy)
            # The source may have changed since it was checked, so check the copy.
            check_model(copy)
        try:
            _swap(root, "promote", version, former, note, metrics)
        except BaseException:
            if current_version(root) != version:
                shutil.rmtree(folder, ignore_errors=True)
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
    with _changing(root, emit):
        former = current_version(root)
        to = _before_current(root) if to is None else to
        folder = _folder(root, to)
        # A folder without a line in the history is a copy whose process died before it became current.
        if not is_there(root, to) or to not in (entry["version"] for entry in history(root)):
            raise MissingInput(f"there is no version {to}", str(root), f"see bigsvm history {root}")
        _refuse_a_link(folder)
        check_model(folder)
        if to != former:
            _swap(root, "rollback", to, former, note)
    return to


def settle(registry: str | Path, emit: Emit = silent) -> None:
    """Finish a change whose process died, so that the history agrees with the link.  Raises OutputError."""
    root = Path(registry)
    if (root / VERSIONS).is_dir():
        with _changing(root, emit):
            pass


def prune(registry: str | Path, keep: int, emit: Emit = silent) -> list[int]:
    """Delete all but the `keep` newest versions; the current one, and the one that a rollback goes to, always stay.

    Returns the numbers of the deleted versions, ascending.  A version without model.json counts as deleted; what an
    interrupted deletion left is removed here.  Raises MissingInput, OutputError.
    """
    root = Path(registry)
    with _changing(root, emit):
        numbers = _numbers(root)
        there = [number for number in numbers if is_there(root, number)]
        stay = {*there[max(len(there) - max(keep, 0), 0) :], current_version(root)}
        try:
            stay.add(_before_current(root))
        except MissingInput:
            pass
        gone = [number for number in numbers if number not in stay]
        for number in gone:
            folder = _folder(root, number)
            try:
                if folder.is_symlink():
                    folder.unlink()
                    continue
                (folder / "model.json").unlink(missing_ok=True)
                shutil.rmtree(folder)
            except OSError as error:
                raise cannot_write(folder, error) from error
    return gone


def history(registry: str | Path) -> list[dict[str, Any]]:
    """The entries of the history, oldest first.  A torn last line is skipped; DataError names any other bad line."""
    path = Path(registry) / HISTORY
    entries = []
    for number, line in enumerate((path.read_bytes() if path.exists() else b"").split(b"\n")[:-1], 1):
        try:
            entry = json.loads(line)
            entries.append({**entry, "version": int(entry["version"]), "action": str(entry["action"])})
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"line {number} is not a valid entry of a history", str(path), "repair or drop the line"
            ) from error
    return entries


def current(registry: str | Path) -> Path | None:
    """The resolved folder of the current version; None if there is none.  Raises DataError."""
    version = current_version(Path(registry))
    if version is None:
        return None
    folder = _folder(Path(registry), version)
    if not is_there(Path(registry), version):
        hint = f"bigsvm rollback {registry} --to N makes another version current"
        raise DataError(f"the current version {version} is not there", str(registry), hint)
    _refuse_a_link(folder)
    return folder


def is_there(root: Path, version: int) -> bool:
    """Whether a version exists; an interrupted deletion leaves a folder without model.json."""
    return (_folder(root, version) / "model.json").is_file()


def current_version(root: Path) -> int | None:
    """The version that the link names; None without a link.  Raises DataError if it is not a link of a registry."""
    try:
        target = os.readlink(root / CURRENT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f"not a link: {error.strerror}", str(root / CURRENT)) from error
    match = _LINK.fullmatch(target)
    if match is None:
        hint = f"delete it, then: bigsvm rollback {root} --to N"
        raise DataError(f"links to {target!r}, which is not a version", str(root / CURRENT), hint)
    return int(match[1])


@contextmanager
def _changing(root: Path, emit: Emit, create: bool = False) -> Iterator[None]:
    """Hold the registry's lock, and clean up first: under the lock, every temporary file belongs to a dead process.

    emit : receives a message if another process holds the lock
    """
    if not create and not (root / VERSIONS).is_dir():
        raise MissingInput("no registry here", str(root), "bigsvm promote makes one")
    check_place(root)
    folder = root / VERSIONS
    absent = [each for each in (folder, *folder.parents) if create and not each.exists()]
    held = False
    try:
        with _locked(root, emit, create) as lock:
            held = True
            sign(lock)
            try:
                _tidy(root)
                yield
            except BaseException:
                _remove_empty(root, absent)
                raise
            finally:
                unsign(lock)
    except OutputError:
        if not held:  # not even the lock could be made; once it was let go, what is there may be another process's
            _remove_empty(root, absent)
        raise


@contextmanager
def _locked(root: Path, emit: Emit, create: bool) -> Iterator[IO[str]]:
    """The lock of a registry, held during the block.

    create : make its folders; whoever made them and could not promote takes them away again, and with them the lock
        that others may wait for
    """
    folder = root / VERSIONS
    for look in range(_LOOKS):
        try:
            if create:
                folder.mkdir(parents=True, exist_ok=True)
            lock = open(root / LOCK, "a+")  # noqa: SIM115
        except FileNotFoundError as error:
            if create and look < _LOOKS - 1:  # taken away between the two
                continue
            raise cannot_write(root, error) from error
        except OSError as error:
            raise cannot_write(root, error) from error
        with lock:
            _wait_for(lock, emit)
            # Whoever takes a registry away removes `versions` before the lock, and perhaps between our two steps above.
            if is_that(root / LOCK, lock) and (not create or folder.is_dir()):
                yield lock
                return
    raise OutputError("it is made and taken away again and again", str(root), "who else promotes to it?")


def _remove_empty(root: Path, absent: list[Path]) -> None:
    """Remove a registry that has no version, if it was not there before: nobody is to take it for one.

    absent : the folders that were not there, innermost first
    """
    with suppress(OSError):
        if not absent or os.path.lexists(root / CURRENT) or _size(root / HISTORY) or any((root / VERSIONS).glob("*")):
            return
        for name in (HISTORY, PENDING):
            (root / name).unlink(missing_ok=True)
        for each in absent:  # `versions`, then the registry, then what it lies in
            with suppress(FileNotFoundError):
                each.rmdir()
            (root / LOCK).unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _wait_for(lock: IO[str], emit: Emit) -> None:
    """Take the registry's lock; if that takes long, emit a message naming its holder."""
    waiting, began = "", time.monotonic()

    def tell(who: str) -> None:
        nonlocal waiting
        waiting = f"{WAITING}{who}, which is changing the registry"
        emit(WorkStarted(waiting, 0, ""))

    wait_for(lock, tell)
    if waiting:
        emit(WorkEnded(waiting, time.monotonic() - began))


def check_place(root: Path) -> None:
    """Raise OutputError for a registry in a bucket or in a store, or whose folder is a model or a run."""
    check_here(root)
    check_outside_stores(root / VERSIONS)
    for name, what in (("model.json", "model"), ("run.json", "run")):
        if (root / name).is_file():
            hint = "the registry comes first: bigsvm promote REGISTRY MODEL"
            raise OutputError(f"is a {what}, not a registry", str(root), hint)


def _tidy(root: Path) -> None:
    """Remove temporary files of dead processes, and complete the history if a process died before it could."""
    for path in [*root.glob(_LITTER), *(root / VERSIONS).glob(_LITTER)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    entries, version = history(root), current_version(root)
    recorded = entries[-1]["version"] if entries else None
    if version is not None and not is_there(root, version):
        return  # the version is gone, so there is nothing to record; whoever compares with it or loads it gets an error
    if version is not None and version != recorded:
        action, note, metrics = _pending(root, version)
        # An interrupted rollback must not be recorded as a promotion.
        _write_down(root, "rollback" if action == "rollback" else "recovered", version, recorded, note, metrics)
    elif entries and version is not None:
        # A copy without a history entry: its process died before the swap.
        newest = max(entry["version"] for entry in entries)
        for number in (number for number in _numbers(root) if number > newest):
            shutil.rmtree(_folder(root, number), ignore_errors=True)


def _swap(
    root: Path, action: str, version: int, former: int | None, note: str, metrics: dict[str, Any] | None = None
) -> None:
    """Make a version current and add the history entry: both, or neither if one of them cannot be written.

    Raises OutputError.
    """
    with undisturbed():
        try:
            _announce(root, action, version, note, metrics)
            _point_to(root, version)
            _write_down(root, action, version, former, note, metrics)
        except OutputError as error:
            _swap_back(root, version, former, error)
            raise
        (root / PENDING).unlink(missing_ok=True)
        it_is_done(root)


def _swap_back(root: Path, version: int, former: int | None, error: OutputError) -> None:
    """Make the former version current again; if that fails, the next change completes the history instead."""
    with suppress(OSError, OutputError):
        if current_version(root) == version:
            if former is None:
                (root / CURRENT).unlink()
            else:
                _point_to(root, former)
    if current_version(root) == version:
        error.hint = f"version {version} is current all the same; once there is room, the next change writes it down"
        error.args = (error.what, error.where, error.hint)
    else:
        (root / PENDING).unlink(missing_ok=True)


def _announce(root: Path, action: str, version: int, note: str, metrics: dict[str, Any] | None = None) -> None:
    """Write .pending.json, from which `_tidy` completes the history if this process dies."""
    said = {"action": action, "version": version, "note": note, "metrics": metrics or {}}
    write_bytes(root / PENDING, json.dumps(said, allow_nan=False).encode())


def _pending(root: Path, version: int) -> tuple[str, str, dict[str, Any]]:
    """(action, note, metrics) from .pending.json, if it describes the change to `version`; else defaults."""
    nothing = "the link had moved without an entry"
    try:
        said = json.loads((root / PENDING).read_bytes())
        if said["version"] == version:
            return str(said.get("action")), str(said["note"]) or nothing, dict(said["metrics"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass  # no valid file: the link was moved by other means
    return "", nothing, {}


def _copy_model(source: Path, model: Model, copy: Path) -> None:
    """Copy model.json and the files that it names; read-only, because a version never changes."""
    for name in ["model.json", *model.about["digests"]]:
        with open(source / name, "rb") as reading, open(copy / name, "xb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 20)
            os.fchmod(writing.fileno(), os.fstat(writing.fileno()).st_mode & 0o444)


def _point_to(root: Path, version: int) -> None:
    """Swap the link, in one rename: the only step that readers can see."""
    link = root / CURRENT
    temporary = temporary_name(link)
    try:
        os.symlink(f"{VERSIONS}/{version:06d}", temporary)
        os.replace(temporary, link)
        sync_directory(root)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write(link, error) from error


def _write_down(
    root: Path, action: str, version: int, former: int | None, note: str, metrics: dict[str, Any] | None = None
) -> None:
    """Append an entry to the history, and flush it to disk; a torn last line is cut off first."""
    entry = {
        "schema_version": 1,
        "action": action,
        "version": version,
        "from": former,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "by": _who(),
        "model_fingerprint": model_fingerprint(_folder(root, version)),
        "note": note,
        "metrics": metrics or {},
    }
    line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    path = root / HISTORY
    try:
        with open(path, "a+b", buffering=0) as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
                sync_directory(root)
            except OSError:
                file.truncate(whole)  # remove the entry again
                raise
    except OSError as error:
        raise cannot_write(path, error, len(line)) from error


def _before_current(root: Path) -> int:
    """The version that a rollback goes to.  The history is replayed as a stack: a promotion pushes, a rollback pops."""
    pile: list[int] = []
    for version in (entry["version"] for entry in history(root)):
        pile = pile[: pile.index(version) + 1] if version in pile else [*pile, version]
    pile = [version for version in pile if is_there(root, version)]  # skip versions that were deleted
    former = current_version(root)
    if former is not None and not is_there(root, former):
        pile.append(former)  # the current version counts as the top, even if its folder is gone
    if len(pile) < 2:
        raise MissingInput("there is no earlier version to go back to", str(root))
    return pile[-2]


def _refuse_a_link(folder: Path) -> None:
    """Raise DataError if a version is a link, because the target of a link may change."""
    if folder.is_symlink():
        raise DataError("the version is a link", str(folder), "put the model's folder itself there")


def _folder(root: Path, version: int) -> Path:
    return root / VERSIONS / f"{version:06d}"


def _numbers(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / VERSIONS).iterdir() if re.fullmatch("[0-9]{6,}", path.name))


def _next_version(root: Path) -> int:
    """A number above all versions that exist or were ever recorded."""
    used = [*_numbers(root), *(entry["version"] for entry in history(root)), current_version(root) or 0]
    return max(used) + 1


def _who() -> str:
    """`user@host`, for the history."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # e.g. a user without a name in a container
        user = str(os.getuid())
    return f"{user}@{platform.node()}"
