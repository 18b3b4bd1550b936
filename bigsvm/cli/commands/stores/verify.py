"""bigsvm verify: compares every chunk of a store with the manifest."""

from __future__ import annotations

from pathlib import Path

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, storage_option
from bigsvm.cli.session import Session
from bigsvm.cli.types import Source
from bigsvm.errors import DataError
from bigsvm.units import show_bytes


@bigsvm_command(help="Check every chunk of STORE against its manifest.  Exit 65: something is damaged, and is named.")
@click.argument("store", type=Source())
@add([storage_option])
def command(session: Session, store: str) -> int:
    from bigsvm.store.remote.names import here
    from bigsvm.store.sealing.former import PENDING
    from bigsvm.store.sealing.manifest import FORMER
    from bigsvm.store.sealing.verify import verify_store

    with here(store, whole=True) as path, session.watching() as emit:
        result = verify_store(Path(path), emit)
        if (Path(path) / FORMER / PENDING).exists():
            what = (
                "an append was interrupted before all files were in place, so readers without a manifest see a mixture"
            )
            session.warn(f"{store}: {what}; complete it with bigsvm ingest --compact {store}")
    if result["n_bad"]:
        total = result["n_chunks"] + result["n_documents"]
        raise DataError(
            f"{result['n_bad']} of {total} objects are missing, damaged or exchanged: {text.listed(result['bad'], 5)}",
            store,
            "restore them, or ingest the store again",
        )
    if unlisted := result["unlisted"]:
        what = f"metadata that is not in the manifest was added: {text.listed(unlisted, 5)}"
        hint = "remove it; or run: bigsvm seal, after which it counts"
        raise DataError(f"{what}.  A command that reads it is refused", store, hint)
    chunks = text.counted(result["n_chunks"], "chunk") + text.absent(result["n_empty"], result["n_missing"])
    line = f"{text.label(store)}: {chunks}, {show_bytes(result['bytes'])}, all as sealed"
    return session.finish({"store": store, **result}, line, only_told=True)
