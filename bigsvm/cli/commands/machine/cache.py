"""bigsvm cache: shows, clears and fills the caches that bigsvm keeps between runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

import bigsvm
from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.config import FitConfig
from bigsvm.units import show_bytes, show_seconds

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
    "--for", "uses", multiple=True, type=click.Choice([*USES, "all"]), default=["all"], show_default=True,
    help="What warm compiles for; repeatable.  demo: the demonstration, and a first fit of text.",
)  # fmt: skip
def command(session: Session, action: str, scratch: str | None, uses: tuple[str, ...]) -> int:
    if action == "warm":
        return _warm(session, uses)
    from bigsvm.files.paths import cache_folder
    from bigsvm.store.copy.copy_folder import copies_folder, copies_in, remove_copy, tree_bytes
    from bigsvm.store.copy.scratch import scratch_folder

    kernels = sorted(cache_folder().glob("kernels-*"))
    manifests = cache_folder() / "manifests"
    copies = copies_folder(scratch_folder(FitConfig.of(scratch=scratch)))
    staged = copies_in(copies)
    result: dict[str, Any] = {
        "cache": str(cache_folder()),
        "kernels": {
            "n": sum(1 for folder in kernels for _ in folder.rglob(COMPILED)),
            "versions": len(kernels),
            "bytes": sum(map(tree_bytes, kernels)),
        },
        "shipped": _shipped(),
        "manifests": {"n": _count(manifests), "bytes": tree_bytes(manifests)},
        "scratch": str(copies),
        "staged": {"n": len(staged), "bytes": sum(map(tree_bytes, staged))},
    }
    lines = [
        ("compiled kernels", _kernels(result["kernels"], cache_folder())),
        ("came with bigsvm", _came(result["shipped"])),
        ("manifests", f"of {_size(result['manifests'], 'store', manifests)}"),
        ("staged copies", _size(result["staged"], "copy", copies)),
    ]
    if action == "clear":
        for folder in [*kernels, manifests]:
            shutil.rmtree(folder, ignore_errors=True)
        in_use = [path for path in staged if not remove_copy(path)]
        for path in in_use:
            session.warn(f"{path} is in use and stays")
        result["in_use"] = len(in_use)
    return session.finish(result, ("cleared\n" if action == "clear" else "") + text.rows(lines))


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
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun[:-1]}ies" if noun.endswith("y") else f"{n:,} {noun}s"
