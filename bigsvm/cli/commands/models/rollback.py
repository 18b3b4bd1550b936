"""bigsvm rollback: makes an earlier model current again."""

from __future__ import annotations

from pathlib import Path

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.cli.types import LocalPath
from bigsvm.files.undisturbed import that_is_done_once


@bigsvm_command(
    help="Make the version before the current one of REGISTRY current again, byte for byte, in one atomic "
    "step.  A second rollback goes back further."
)
@click.argument("registry", type=LocalPath())
@click.option("--to", type=click.IntRange(min=1), metavar="N", help="Go to this version instead.")
@click.option("--note", default="", metavar="TEXT", help="A line for the history.")
def command(session: Session, registry: Path, to: int | None, note: str) -> int:
    with that_is_done_once(registry):
        return _rolled_back(session, registry, to, note)


def _rolled_back(session: Session, registry: Path, to: int | None, note: str) -> int:
    from bigsvm.model.model_files import model_fingerprint
    from bigsvm.model.versions import current_version, rollback

    before = current_version(registry)
    with session.watching() as emit:
        version = rollback(registry, to, note, emit=emit)
    fingerprint = model_fingerprint(registry / "versions" / f"{version:06d}")
    result = {
        "registry": str(registry),
        "version": version,
        "from": before,
        "model_fingerprint": fingerprint,
        "current": str(registry / "current"),
    }
    line = f"{text.label(registry)}: version {version} is current, fingerprint {fingerprint}"
    return session.finish(result, line, made=True)
