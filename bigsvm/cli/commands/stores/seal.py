"""bigsvm seal: writes the manifest of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, empty_option
from bigsvm.cli.session import Session
from bigsvm.cli.types import AnyPath


@bigsvm_command(
    help="Write the manifest of chunk digests into STORE, as it is now; every later read is verified with it."
)
@click.argument("store", type=AnyPath())
@add([empty_option])
def command(session: Session, store: Path, empty_chunks: Any) -> int:
    from bigsvm.files.paths import check_here, no_such_store
    from bigsvm.store.sealing.seal import changed_since, former_manifest, seal

    check_here(store)
    if not store.is_dir():
        raise no_such_store(str(store))
    former = former_manifest(store)
    manifest = seal(store, empty_chunks)
    changed = [] if former is None or manifest.lists_the_same(former) else list(changed_since(store, former))
    if changed:
        which = f"{text.count(len(changed))} ({text.listed(changed, 5)})"
        session.warn(
            f"objects have changed since they were sealed before: {which}; their present content is now sealed"
        )
    if manifest.n_missing:
        session.warn(
            f"{text.count(manifest.n_missing)} chunks of arrays other than X, label and weight are missing: they are "
            "listed as missing, and reading them is an error; use --empty-chunks zeros if they hold the fill value"
        )
    result = {
        "store": str(store),
        "n_documents": len(manifest.documents),
        "n_chunks": len(manifest.key_hashes),
        "n_empty": manifest.n_empty,
        "n_missing": manifest.n_missing,
        "store_fingerprint": manifest.fingerprint,
    }
    chunks = text.counted(len(manifest.key_hashes), "chunk") + text.absent(manifest.n_empty, manifest.n_missing)
    line = f"{text.label(store)}: sealed, {chunks}, fingerprint {manifest.fingerprint}"
    return session.finish(result, line, made=True)
