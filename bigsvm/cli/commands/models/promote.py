"""bigsvm promote: copies a model into a registry and makes it current."""

from __future__ import annotations

from pathlib import Path

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.cli.types import LocalPath, OutputPath
from bigsvm.files.undisturbed import that_is_done_once


@bigsvm_command(
    help="Copy MODEL into REGISTRY and make it current, in one atomic step.\n\n"
    "The model is checked first: a damaged one, or one with other features or classes than the current "
    "model, is refused and the current one stays."
)
@click.argument("registry", type=OutputPath())
@click.argument("model", type=LocalPath())
@click.option("--note", default="", metavar="TEXT", help="A line for the history.")
@click.option("--allow-other-shape", is_flag=True, help="Accept other features or classes than the current model's.")
def command(session: Session, registry: Path, model: Path, note: str, allow_other_shape: bool) -> int:
    with that_is_done_once(registry):
        return _promoted(session, registry, model, note, allow_other_shape)


def _promoted(session: Session, registry: Path, model: Path, note: str, allow_other_shape: bool) -> int:
    from bigsvm.model.versions import history, promote

    with session.watching() as emit:
        version = promote(registry, model, note, allow_other_shape=allow_other_shape, emit=emit)
    entry = next(entry for entry in reversed(history(registry)) if entry["version"] == version)
    result = {"registry": str(registry), "model": str(model), "current": str(registry / "current"), **entry}
    lines = [
        ("version", version),
        ("before", entry["from"]),
        ("fingerprint", entry["model_fingerprint"]),
        ("path", result["current"]),
    ]
    return session.finish(result, f"{text.label(model)}: promoted\n" + text.rows(lines), made=True)
