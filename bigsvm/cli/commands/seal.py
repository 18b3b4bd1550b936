"""bigsvm seal: the manifest of a store."""

from __future__ import annotations

from pathlib import Path

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.errors import MissingInput


@bigsvm_command(
    help="Write the manifest of chunk digests into STORE, as it is now; every later read is held against it."
)
@click.argument("store", type=click.Path(path_type=Path))
def command(session: Session, store: Path) -> int:
    from bigsvm.store.sealing import seal

    if not store.is_dir():
        raise MissingInput("no such store", str(store))
    manifest = seal(store)
    result = {
        "store": str(store),
        "n_documents": len(manifest.documents),
        "n_chunks": len(manifest.key_hashes),
        "store_fingerprint": manifest.fingerprint,
    }
    line = f"{store}: sealed, {text.count(len(manifest.key_hashes))} chunks, fingerprint {manifest.fingerprint}"
    return session.finish(result, line, made=True)
