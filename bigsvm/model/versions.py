"""Versioned models on disk, one of them current.

    REGISTRY/versions/000001/   a copied model directory, never changed again
    REGISTRY/current            relative symlink to one of them, swapped by one rename
    REGISTRY/history.jsonl      one line for each thing that happened: who, when, what, from which version
    REGISTRY/.pending.json      of a change that is under way, what its line of the history will say
    REGISTRY/.lock              held (flock) by whoever changes something

What is current is what the link says.  A reader takes `current(registry)` once and loads what it names:
versions stay where they are, so it sees one whole model, whatever happens meanwhile.  A crash leaves the
link as it was or as it was to be; the next change removes what is left and writes down what is missing.
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
    """Another model is current than the one that a model was compared with."""


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
    registry : folder; made where it does not exist
    note, metrics : a line, and figures as JSON can hold them, for the history
    allow_other_shape : accept other classes or another number of features than the current model has
    over : the version that must be the current one still, None for none: what the model was compared with
    emit : is told of another process that is waited for, since it is changing the registry

    Returns the new version's number.

    Raises
    ------
    MissingInput : there is no model. DataError : it is damaged, not finite, or of another shape than the
    current one. OutputError : the registry cannot be written. CurrentMoved : it is not `over` that is current.  The
    current model stays in all cases.
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
                what = f"the current version {former} is not there: nothing to compare features and classes with"
                hint = f"bigsvm rollback {root} --to N first, or use --allow-other-shape"
                raise DataError(what, str(root), hint)
            difference = shape_difference(model, check_model(_folder(root, former)))
            if difference:
                raise DataError(difference, str(source), "use --allow-other-shape if you mean it")
        version = _next_version(root)
        folder = _folder(root, version)
        with new_directory(folder) as copy:
            _copy_model(source, model, copy)
            # The source may have changed since it was looked at: what counts is the copy.
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
    to : a version; None: the one before the current one, so that a second rollback goes back further
    emit : as of `promote`

    Raises
    ------
    MissingInput : there is no such version. DataError : it is damaged.  The current model stays in both cases.
    """
    root = Path(registry)
    with _changing(root, emit):
        former = current_version(root)
        to = _before_current(root) if to is None else to
        folder = _folder(root, to)
        # A copy that nobody made current, since whoever copied it died, is no version.
        if not is_there(root, to) or to not in (entry["version"] for entry in history(root)):
            raise MissingInput(f"there is no version {to}", str(root), f"see bigsvm history {root}")
        _refuse_a_link(folder)
        check_model(folder)
        if to != former:
            _swap(root, "rollback", to, former, note)
    return to


def settle(registry: str | Path, emit: Emit = silent) -> None:
    """Finish what somebody who died left half done: then the history says what the link says.  Raises OutputError."""
    root = Path(registry)
    if (root / VERSIONS).is_dir():
        with _changing(root, emit):
            pass


def prune(registry: str | Path, keep: int, emit: Emit = silent) -> list[int]:
    """Delete all but the `keep` newest versions; the current one and the one that a rollback goes to always stay.

    Returns the numbers that went, ascending.  A version without its model.json counts as gone, so a deletion that was
    cut short is taken up by the next one.  Raises MissingInput, OutputError.
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
    """What happened, oldest first.  A last line torn by a crash is left out; DataError names any other."""
    path = Path(registry) / HISTORY
    entries = []
    for number, line in enumerate((path.read_bytes() if path.exists() else b"").split(b"\n")[:-1], 1):
        try:
            entry = json.loads(line)
            entries.append({**entry, "version": int(entry["version"]), "action": str(entry["action"])})
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"line {number} is no entry of a history", str(path), "repair or drop the line") from error
    return entries


def current(registry: str | Path) -> Path | None:
    """The folder that the link names, itself no link; None where nothing is current.  Raises DataError."""
    version = current_version(Path(registry))
    if version is None:
        return None
    folder = _folder(Path(registry), version)
    if not is_there(Path(registry), version):
        hint = f"bigsvm rollback {registry} --to N makes one current that is"
        raise DataError(f"the current version {version} is not there", str(registry), hint)
    _refuse_a_link(folder)
    return folder


def is_there(root: Path, version: int) -> bool:
    """Whether a version has not been deleted; what is left of a deletion that was cut short has no model.json."""
    return (_folder(root, version) / "model.json").is_file()


def current_version(root: Path) -> int | None:
    """The number that the link names; None without a link.  Raises DataError where it is no link of ours."""
    try:
        target = os.readlink(root / CURRENT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f"not a link: {error.strerror}", str(root / CURRENT)) from error
    match = _LINK.fullmatch(target)
    if match is None:
        hint = f"delete it, then: bigsvm rollback {root} --to N"
        raise DataError(f"links to {target!r}, which is no version", str(root / CURRENT), hint)
    return int(match[1])


@contextmanager
def _changing(root: Path, emit: Emit, create: bool = False) -> Iterator[None]:
    """Alone with the registry, tidied up: every temporary seen under the lock was left by the dead.

    emit : is told of another process that is waited for
    """
    if not create and not (root / VERSIONS).is_dir():
        raise MissingInput("no registry here", str(root), "bigsvm promote makes one")
    check_place(root)
    folder = root / VERSIONS
    absent = [each for each in (folder, *folder.parents) if create and not each.exists()]
    try:
        with _locked(root, emit, create) as lock:
            sign(lock)
            try:
                _tidy(root)
                yield
            except BaseException:
                _remove_empty(root, absent)
                raise
            finally:
                unsign(lock)
    except OutputError:  # where not even the lock could be made
        _remove_empty(root, absent)
        raise


@contextmanager
def _locked(root: Path, emit: Emit, create: bool) -> Iterator[IO[str]]:
    """The lock of a registry, held during the block.

    create : make its folders; whoever made them and could not promote takes them away again, and with them the lock
        that others may wait for
    """
    for look in range(_LOOKS):
        try:
            if create:
                (root / VERSIONS).mkdir(parents=True, exist_ok=True)
            lock = open(root / LOCK, "a+")  # noqa: SIM115
        except FileNotFoundError as error:
            if create and look < _LOOKS - 1:  # taken away between the two
                continue
            raise cannot_write(root, error) from error
        except OSError as error:
            raise cannot_write(root, error) from error
        with lock:
            _wait_for(lock, emit)
            if is_that(root / LOCK, lock):
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
    """Take the registry's lock; who has it for long is told of."""
    waiting, began = "", time.monotonic()

    def tell(who: str) -> None:
        nonlocal waiting
        waiting = f"{WAITING}{who}, which is changing the registry"
        emit(WorkStarted(waiting, 0, ""))

    wait_for(lock, tell)
    if waiting:
        emit(WorkEnded(waiting, time.monotonic() - began))


def check_place(root: Path) -> None:
    """Refuse a registry in a bucket or a store, and a folder that is a model or a run.  Raises OutputError."""
    check_here(root)
    check_outside_stores(root / VERSIONS)
    for name, what in (("model.json", "model"), ("run.json", "run")):
        if (root / name).is_file():
            hint = "the registry comes first: bigsvm promote REGISTRY MODEL"
            raise OutputError(f"is a {what}, and no registry", str(root), hint)


def _tidy(root: Path) -> None:
    """Remove dead temporaries, and write down a change whose author died before it could."""
    for path in [*root.glob(_LITTER), *(root / VERSIONS).glob(_LITTER)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    entries, version = history(root), current_version(root)
    recorded = entries[-1]["version"] if entries else None
    if version is not None and not is_there(root, version):
        return  # of what is gone there is nothing to write down; who wants it compared or loaded is told
    if version is not None and version != recorded:
        action, note, metrics = _pending(root, version)
        # A rollback stays one: whoever asks what was promoted must not find it.
        _write_down(root, "rollback" if action == "rollback" else "recovered", version, recorded, note, metrics)
    elif entries and version is not None:
        # Copied but never current: whoever copied it died before the swap.
        newest = max(entry["version"] for entry in entries)
        for number in (number for number in _numbers(root) if number > newest):
            shutil.rmtree(_folder(root, number), ignore_errors=True)


def _swap(
    root: Path, action: str, version: int, former: int | None, note: str, metrics: dict[str, Any] | None = None
) -> None:
    """Make a version current and write it down: both, or neither where one cannot be written.

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
    """Make current what was current, where the link has moved; else the next change writes down that it has."""
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
    """Say what is about to be done, for `_tidy` where this process dies before it has written it down."""
    said = {"action": action, "version": version, "note": note, "metrics": metrics or {}}
    write_bytes(root / PENDING, json.dumps(said, allow_nan=False).encode())


def _pending(root: Path, version: int) -> tuple[str, str, dict[str, Any]]:
    """(action, note, metrics) of the change that moved the link to a version and died before its line was written."""
    nothing = "the link had moved without an entry"
    try:
        said = json.loads((root / PENDING).read_bytes())
        if said["version"] == version:
            return str(said.get("action")), str(said["note"]) or nothing, dict(said["metrics"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # it was not one of ours that moved the link
        pass
    return "", nothing, {}


def _copy_model(source: Path, model: Model, copy: Path) -> None:
    """The files that model.json names, and itself; read-only, since a version never changes."""
    for name in ["model.json", *model.about["digests"]]:
        with open(source / name, "rb") as reading, open(copy / name, "xb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 20)
            os.fchmod(writing.fileno(), os.fstat(writing.fileno()).st_mode & 0o444)


def _point_to(root: Path, version: int) -> None:
    """The one step that readers see."""
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
    """Append an entry to the history, durable when this returns; a torn last line is cut off first."""
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
                file.truncate(whole)  # what the line says is taken back
                raise
    except OSError as error:
        raise cannot_write(path, error, len(line)) from error


def _before_current(root: Path) -> int:
    """The version under the current one: promotions pile up, a rollback takes off what lies above."""
    pile: list[int] = []
    for version in (entry["version"] for entry in history(root)):
        pile = pile[: pile.index(version) + 1] if version in pile else [*pile, version]
    pile = [version for version in pile if is_there(root, version)]  # others were deleted to save space
    former = current_version(root)
    if former is not None and not is_there(root, former):
        pile.append(former)  # it is gone, and lies on top all the same
    if len(pile) < 2:
        raise MissingInput("there is no earlier version to go back to", str(root))
    return pile[-2]


def _refuse_a_link(folder: Path) -> None:
    """A version never changes: it is no link to what may.  Raises DataError."""
    if folder.is_symlink():
        raise DataError("the version is a link", str(folder), "put the model's folder itself there")


def _folder(root: Path, version: int) -> Path:
    return root / VERSIONS / f"{version:06d}"


def _numbers(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / VERSIONS).iterdir() if re.fullmatch("[0-9]{6,}", path.name))


def _next_version(root: Path) -> int:
    """One more than any number that is or was in use."""
    used = [*_numbers(root), *(entry["version"] for entry in history(root)), current_version(root) or 0]
    return max(used) + 1


def _who() -> str:
    """`user@host`, for the history."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{platform.node()}"
