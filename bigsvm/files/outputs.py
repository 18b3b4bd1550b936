"""Checks of the outputs that a user names, made before any work; none may block for ever."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bigsvm.errors import OutputError, UsageError
from bigsvm.files.atomic import check_name, new_file
from bigsvm.files.paths import can_make, check_outside_stores, contains, nearest
from bigsvm.files.space import Need, cannot_write
from bigsvm.files.standard_output import standard_output, to_standard_output

_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/")  # descriptors of this process, as shells pass them; they are already open
_NEVER_WRITTEN = (".gz", ".bz2", ".xz", ".zst", ".tsv", ".feather", ".arrow", ".ipc", ".npy", ".npz")


def check_apart(outputs: Mapping[str, Path], inputs: Mapping[str, str | Path]) -> None:
    """Raise OutputError for an output with an invalid name, in a store, or inside (or around) another path.

    outputs, inputs : their names in messages, such as "the model" -> path; inputs that are not local paths are skipped
    """
    for path in outputs.values():
        check_name(path)
        check_outside_stores(path)
    local = {what: Path(path) for what, path in inputs.items() if "://" not in str(path) and str(path) != "-"}
    pairs = [*itertools.product(outputs.items(), local.items()), *itertools.combinations(outputs.items(), 2)]
    for (what, path), (other, there) in pairs:
        if contains(there, path) and contains(path, there):
            raise OutputError(f"{what} is {other}", str(path), "choose another name")
        for inner, outer, of_inner, of_outer in ((path, there, what, other), (there, path, other, what)):
            if contains(outer, inner):
                raise OutputError(f"{of_inner} would lie in {of_outer} {outer}", str(inner), "choose another folder")


def form_of_suffix(out: str, suffixes: Mapping[str, str], otherwise: str) -> str:
    """The format that the suffix of an output tells: `otherwise` for a suffix that tells nothing, such as .txt.

    suffixes : suffix -> format

    Raises UsageError for the suffix of a format that is not written, whose readers would not find it there.
    """
    suffix = Path(out).suffix.lower()
    if suffix in _NEVER_WRITTEN:
        hint = f"name it {', '.join(suffixes)}, or give --format to write another format under this name"
        raise UsageError(f"{suffix} is the suffix of a format that is not written here", out, hint)
    return suffixes.get(suffix, otherwise)


@contextmanager
def output_file(out: str | Path, overwrite: bool, nbytes: Need = None) -> Iterator[BinaryIO]:
    """Standard output if `out` is "-", else `new_output`.  Raises OutputError if the last bytes cannot be written."""
    if str(out) == "-":
        file = standard_output()
        yield file
        with to_standard_output():
            file.flush()
        return
    with new_output(Path(out), overwrite, nbytes) as file:
        yield file


@contextmanager
def new_output(final: Path, overwrite: bool, nbytes: Need = None) -> Iterator[BinaryIO]:
    """A temporary file that is renamed to `final` if the block ends well, and is removed otherwise.

    nbytes : what is needed, for the error message if the disk is full

    A descriptor of this process (/dev/fd/3) and /dev/null are written to directly.

    Raises
    ------
    OutputError : the output exists (unless overwrite), has an invalid name, lies in a store, or cannot be written; or
        it is a pipe or a device (opening a pipe that nobody reads would block for ever).
    """
    if str(final) == os.devnull or str(final).startswith(_DESCRIPTORS):
        try:
            with open(final, "wb") as file:
                yield file
        except BrokenPipeError:
            raise
        except OSError as error:
            raise cannot_write(final, error) from error
        return
    check_plain_output(final, overwrite)
    with new_file(final, nbytes, overwrite) as file:
        yield file


def check_plain_output(final: Path, overwrite: bool, makes_folders: bool = False) -> None:
    """Check, before the work, everything for which `new_output` would fail at its end.

    makes_folders : missing folders above the output will be made

    Raises OutputError.
    """
    if str(final) == os.devnull or str(final).startswith(_DESCRIPTORS):
        return
    check_name(final)
    check_outside_stores(final)
    mode: int | None
    try:
        mode = final.stat().st_mode
    except FileNotFoundError:
        # A dangling link occupies the name as well.
        mode = stat.S_IFREG if final.is_symlink() else None
    except OSError as error:
        raise cannot_write(final, error) from error
    if mode is not None:
        if stat.S_ISDIR(mode):
            raise OutputError("the output is a folder", str(final), "choose another name")
        if not stat.S_ISREG(mode):
            hint = "write to - where the command can, or name a file"
            raise OutputError("the output is a pipe or a device", str(final), hint)
        if not overwrite:
            raise OutputError("the output exists", str(final), "choose another name or use --overwrite")
    if not makes_folders:
        try:
            final.parent.stat()
        except OSError as error:
            raise cannot_write(final, error) from error
    check_folder(final.parent)


def check_folder(folder: Path) -> None:
    """Raise OutputError for a folder into which nothing can be written; it may be missing, and folders above it."""
    if not can_make(folder):
        raise OutputError("cannot write there", str(nearest(folder)), "choose another folder")
