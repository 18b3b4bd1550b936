"""bigsvm history: lists the promotions and rollbacks of a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.cli.types import LocalPath
from bigsvm.errors import MissingInput


@bigsvm_command(light=True, help="List the changes of REGISTRY, oldest first, and say which version is current.")
@click.argument("registry", type=LocalPath())
def command(session: Session, registry: Path) -> int:
    from bigsvm.model.versions import VERSIONS, current_version, history, is_there

    if not (registry / VERSIONS).is_dir():
        raise MissingInput("no registry here", str(registry), "bigsvm promote makes one")
    entries, version = history(registry, session.warn), current_version(registry)
    if version is not None and not is_there(registry, version):
        session.warn(f"the current version {version} is missing: bigsvm rollback {registry} --to N")
    result = {"registry": str(registry), "current_version": version, "entries": entries}
    shown = "\n".join([*map(shown_entry, entries), f"{text.label(registry)}: {_current(version)}"])
    return session.finish(result, shown, only_told=True)


def shown_entry(entry: dict[str, Any]) -> str:
    """A change as one line of text."""
    came = "" if entry["from"] is None else f" (was {entry['from']})"
    metrics = ", ".join(
        f"{name} {text.number(value, 5)}"
        for name, value in entry["metrics"].items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
    parts = [f"{entry['action']} {entry['version']}{came}", entry["by"], metrics, entry["note"]]
    line = f"  {entry['at']}  " + "  ".join(part for part in parts if part)
    return "".join(
        mark if mark.isprintable() else " " for mark in line
    )  # a note may contain anything, but must stay on its line


def _current(version: int | None) -> str:
    return "nothing is current" if version is None else f"version {version} is current"
