"""bigsvm cache: shows, clears and fills the caches that bigsvm keeps between runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import click

import bigsvm
from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.config import FitConfig
from bigsvm.units import counted, show_bytes, show_seconds

USES = ("demo", "fit", "predict", "certify")
COMPILED = "*.compiled"
"""Repeated from `bigsvm/run/warm.py` and `bigsvm/compiled/cache`, so that help texts need not import them."""


@bigsvm_command(
    light=True,
    help="Show (info, which is the default) or delete (clear) what bigsvm keeps between runs: compiled code, "
    "manifests of stores that were never sealed, and working copies that no run uses.\n\n"
    "warm compiles ahead of time what common commands need and no cache has yet.  It takes some minutes for all, and "
    "prints a line for each kind of work.  Code that came compiled with the installation is not compiled again.",
)
@click.argument("action", type=click.Choice(["info", "clear", "warm"]), default="info")
@click.option(
    "--scratch", metavar="DIR", help="Folder of working copies.  [default: a folder of yours in the temporary folder]"
)
@click.option(
    "--for", "uses", multiple=True, type=click.Choice([*USES, "all"]), default=["all"],
    help="What warm compiles for; repeatable.  demo: the demonstration, and first fits of text and of tables of "
    "numbers.  [default: all]",
)  # fmt: skip
def command(session: Session, action: str, scratch: str | None, uses: tuple[str, ...]) -> int:
    if action == "warm":
        return _warm(session, uses)
    from bigsvm.files.paths import cache_folder
    from bigsvm.store.copy.copy_folder import copies_folder, copies_in, remove_copy, tree_bytes
    from bigsvm.store.copy.scratch import scratch_folder

    others = _others()
    copies = copies_folder(scratch_folder(FitConfig.of(scratch=scratch)))
    staged = copies_in(copies)
    result: dict[str, Any] = {
        **_kept(cache_folder()),
        "others": others,
        "shipped": _shipped(),
        "scratch": str(copies),
        "staged": {"n": len(staged), "bytes": sum(map(tree_bytes, staged))},
    }
    lines = [
        ("compiled kernels", _kernels(result["kernels"], cache_folder())),
        ("came with bigsvm", _came(result["shipped"])),
        ("manifests", _size(result["manifests"], "document", cache_folder())),
        *[("also there", _other(part)) for part in others],
        ("staged copies", _size(result["staged"], "copy", copies)),
    ]
    if action == "clear":
        for place in [cache_folder(), *[Path(part["cache"]) for part in others]]:
            for folder in _folders(place):
                shutil.rmtree(folder, ignore_errors=True)
                if folder.exists():
                    session.warn(f"{folder} cannot be removed and stays")
        in_use = [path for path in staged if not remove_copy(path)]
        for path in in_use:
            session.warn(f"{path} is in use and stays")
        result["in_use"] = len(in_use)
    return session.finish(result, ("cleared\n" if action == "clear" else "") + text.rows(lines))


def _folders(cache: Path) -> list[Path]:
    """What a cache folder consists of."""
    from bigsvm.store.remembered import FOLDER

    return [*sorted(cache.glob("kernels-*")), *[folder for folder in [cache / FOLDER] if folder.is_dir()]]


def _kept(cache: Path) -> dict[str, Any]:
    """Numbers and sizes of what a cache folder holds."""
    from bigsvm.store.copy.copy_folder import tree_bytes
    from bigsvm.store.remembered import FOLDER

    kernels = [folder for folder in _folders(cache) if folder.name != FOLDER]
    return {
        "cache": str(cache),
        "kernels": {
            "n": sum(1 for folder in kernels for _ in folder.rglob(COMPILED)),
            "versions": len(kernels),
            "bytes": sum(map(tree_bytes, kernels)),
        },
        "manifests": {"n": _count(cache / FOLDER), "bytes": tree_bytes(cache / FOLDER)},
    }


def _others() -> list[dict[str, Any]]:
    """Further folders that hold something: the usual one if it cannot be written, and the one in the temporary folder.

    read : whether the manifests are read;  why_not : the reason if they are not
    kernels_read : whether the compiled functions are read
    """
    from bigsvm.files.paths import cache_folder, can_make, temporary_cache, unwritable_cache
    from bigsvm.store.remembered import FOLDER, why_not_read

    found = []
    usual, temporary = unwritable_cache(), temporary_cache()
    if usual is not None and _folders(usual):
        why = why_not_read(usual / FOLDER) if (usual / FOLDER).is_dir() else ""
        believed = not any(map(why_not_read, usual.glob("kernels-*")))
        found.append({**_kept(usual), "read": not why, "why_not": why or None, "kernels_read": believed})
    own = temporary.is_dir() and not temporary.is_symlink() and temporary.stat().st_uid == os.getuid()
    if own and temporary != cache_folder() and _folders(temporary):
        why = f"the cache folder is {cache_folder()}"
        compiled_here = not can_make(cache_folder())  # compiled code is put where it can be
        found.append({**_kept(temporary), "read": False, "why_not": why, "kernels_read": compiled_here})
    return found


def _other(part: dict[str, Any]) -> str:
    """The line about such a folder."""
    manifests, kernels = part["manifests"], part["kernels"]
    read, where = "read, not written" if part["read"] else f"not read: {part['why_not']}", part["cache"]
    nbytes = show_bytes(manifests["bytes"] + kernels["bytes"])
    documents, functions = _counted(manifests["n"], "document"), _counted(kernels["n"], "function")
    return f"{documents} ({read}), {functions} ({'read' if part['kernels_read'] else 'not read'}), {nbytes} in {where}"


def _warm(session: Session, uses: tuple[str, ...]) -> int:
    from bigsvm.files.paths import cache_folder
    from bigsvm.machine import check_address_space
    from bigsvm.run.warm import warm

    check_address_space()
    with session.watching() as emit:
        result = warm(USES if "all" in uses else uses, emit)
    functions = _counted(result["compiled"], "function")
    return session.finish(
        result, f"{functions} compiled in {show_seconds(result['seconds'])}, kept in {cache_folder()}"
    )


def _shipped() -> dict[str, Any]:
    """The compiled functions that came with the installation, and whether this machine can use them."""
    folder = Path(bigsvm.__file__).parent / "_compiled_cache"
    n = sum(1 for _ in folder.glob(COMPILED))
    if n == 0:
        return {"n": 0, "processors": [], "why_not": None}
    from bigsvm.compiled.cache.places import shipped

    found = shipped(folder)
    return {"n": n, "processors": list(found.levels), "why_not": found.why_not or None}


def _came(part: dict[str, Any]) -> str:
    """The line about them."""
    if not part["n"]:
        return "no compiled function: this installation was built without"
    of_use = part["why_not"] or f"for {' and '.join(part['processors'])}"
    return f"{_counted(part['n'], 'compiled function')}{', not usable: ' if part['why_not'] else ', '}{of_use}"


def _count(folder: Path) -> int:
    return sum(1 for path in folder.glob("*.json")) if folder.is_dir() else 0


def _kernels(part: dict[str, int], where: Path) -> str:
    """The line about compiled functions; each version of the program's loops has its own folder."""
    return f"{_counted(part['n'], 'function')} of {_size({**part, 'n': part['versions']}, 'installation', where)}"


def _size(part: dict[str, int], noun: str, where: Path) -> str:
    return f"{_counted(part['n'], noun)}, {show_bytes(part['bytes'])} in {where}"


def _counted(n: int, noun: str) -> str:
    return counted(n, noun, noun[:-1] + "ies" if noun.endswith("y") else "", commas=True)
