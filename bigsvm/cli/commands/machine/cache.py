"""bigsvm cache: what bigsvm keeps between runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.config import FitConfig
from bigsvm.units import show_bytes


@bigsvm_command(
    light=True,
    help="Show (info, which is the default) or delete (clear) what bigsvm keeps between runs: compiled kernels, "
    "manifests of stores that were never sealed, and staged copies that no run uses.",
)
@click.argument("action", type=click.Choice(["info", "clear"]), default="info")
@click.option(
    "--scratch", metavar="DIR", help="Folder of staged copies.  [default: a folder of yours in the temporary folder]"
)
def command(session: Session, action: str, scratch: str | None) -> int:
    from bigsvm.files.paths import cache_folder
    from bigsvm.run.copies.copy_folder import copies_folder, copies_in, remove_copy, tree_bytes
    from bigsvm.run.copies.scratch import scratch_folder

    kernels = sorted(cache_folder().glob("kernels-*"))
    manifests = cache_folder() / "manifests"
    copies = copies_folder(scratch_folder(FitConfig.of(scratch=scratch)))
    staged = copies_in(copies)
    result: dict[str, Any] = {
        "cache": str(cache_folder()),
        "kernels": {
            "n": sum(1 for folder in kernels for _ in folder.rglob("*.nbc")),
            "versions": len(kernels),
            "bytes": sum(map(tree_bytes, kernels)),
        },
        "manifests": {"n": _count(manifests), "bytes": tree_bytes(manifests)},
        "scratch": str(copies),
        "staged": {"n": len(staged), "bytes": sum(map(tree_bytes, staged))},
    }
    lines = [
        ("compiled kernels", _kernels(result["kernels"], cache_folder())),
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


def _count(folder: Path) -> int:
    return sum(1 for path in folder.glob("*.json")) if folder.is_dir() else 0


def _kernels(part: dict[str, int], where: Path) -> str:
    """Each edit of the program's loops has a folder of its own."""
    return f"{_counted(part['n'], 'function')} of {_size({**part, 'n': part['versions']}, 'installation', where)}"


def _size(part: dict[str, int], noun: str, where: Path) -> str:
    return f"{_counted(part['n'], noun)}, {show_bytes(part['bytes'])} in {where}"


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun[:-1]}ies" if noun.endswith("y") else f"{n:,} {noun}s"
