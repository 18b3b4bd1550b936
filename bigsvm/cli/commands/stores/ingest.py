"""bigsvm ingest: converts text, tables, arrays or another store to a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import (
    add,
    empty_option,
    normalize_option,
    row_options,
    scale_option,
    storage_option,
    take_rows,
)
from bigsvm.cli.session import Session
from bigsvm.cli.types import Names, OutputPath, Size, Source
from bigsvm.errors import UsageError
from bigsvm.files.undisturbed import that_is_done_once
from bigsvm.units import parse_bytes, show_bytes


@bigsvm_command(
    help="Turn svmlight/LIBSVM text, tables, arrays or another store into a Zarr STORE that all commands read.\n\n"
    "SRC may be compressed (.gz .bz2 .xz .zst), and may be - for standard input.  Several SRC are read in order."
)
@click.argument("sources", metavar="SRC...", type=Source(), nargs=-1)
@click.argument("store", type=OutputPath())
@click.option(
    "--from",
    "from_format",
    metavar="FORMAT",
    help="svmlight, npz, npy, folder (of arrays) or store (whatever fit reads).  [default: by the name of SRC]",
)
@click.option("--label", metavar="NAME", help="Column or array of labels.  [default: label; y for arrays]")
@click.option(
    "--labels",
    type=Names(),
    metavar="A,B,...",
    help="For rows with several labels: true/false columns, or one text column such as 1,5; for svmlight text: label.",
)
@click.option("--weight", metavar="NAME", help="Column or array of sample weights; '' for none.  [default: weight]")
@click.option("--n-features", type=int, metavar="D", help="Number of features.  [default: the largest index]")
@click.option("--zero-based", is_flag=True, help="Feature indices start at 0.")
@click.option(
    "--task", type=click.Choice(["classification", "regression"]), default="classification", show_default=True,
    help="regression: labels are targets, not classes.",
)  # fmt: skip
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    help="Type of the values.  [default: float32 for text, else as in SRC]",
)
@click.option(
    "--codec",
    type=click.Choice(["lz4", "zstd", "none"]),
    default="lz4",
    show_default=True,
    help="Compression of chunks.",
)
@click.option(
    "--chunk-bytes", type=Size(percent=False), metavar="SIZE", help="Bytes of a decoded chunk.  [default: 4MiB]"
)
@click.option(
    "--memory",
    type=Size(),
    metavar="SIZE|PCT%",
    help="Memory budget, on top of what the process needs without data; less means smaller pieces.  "
    "[default: pieces of the usual size]",
)
@click.option("--threads", type=int, metavar="N", help="Number of threads.  [default: the cores this process may use]")
@click.option("--overwrite", is_flag=True, help="Replace an existing STORE.")
@click.option("--append", is_flag=True, help="Add the rows to the end of STORE, in one step.")
@click.option(
    "--compact",
    is_flag=True,
    help="Without SRC: delete what STORE keeps for readers that opened it before rows were added.",
)
@click.option(
    "--split",
    type=float,
    metavar="SHARE",
    help="Record this share, such as 0.9, in STORE: fit and tune train on that share of its rows, and fit tests on the "
    "others, unless they have a --split of their own.  All rows are written.",
)
@add([empty_option, *row_options, scale_option, normalize_option, storage_option])
def command(
    session: Session,
    sources: tuple[str, ...],
    store: Path,
    chunk_bytes: str | None,
    memory: str | None,
    threads: int | None,
    compact: bool,
    **options: Any,
) -> int:
    if compact:
        return _compact(session, sources, store)
    if not sources:
        raise UsageError("Missing argument 'SRC...'", hint=_with_both(store))
    if threads is not None and threads < 1:
        raise UsageError(f"threads must be at least 1, not {threads}")
    session.note_of_typing(*sources)
    with that_is_done_once(store):
        return _ingest(session, sources, store, chunk_bytes, memory, threads, options)


def _ingest(
    session: Session,
    sources: tuple[str, ...],
    store: Path,
    chunk_bytes: str | None,
    memory: str | None,
    threads: int | None,
    options: dict[str, Any],
) -> int:
    from bigsvm.machine import core_count, memory_limit
    from bigsvm.store.ingest.ingest import ingest

    with session.watching() as emit:
        result = ingest(
            list(sources),
            store,
            chunk_bytes=None if chunk_bytes is None else parse_bytes(chunk_bytes),
            memory=None if memory is None else parse_bytes(memory, total=memory_limit().nbytes),
            threads=threads or core_count(),
            emit=emit,
            **take_rows(options),
            **options,
        )
    for warning in result.pop("warnings", []):
        session.warn(warning)
    result = {**result, "store": str(store)}
    lines = [
        ("rows", text.count(result["n_samples"])),
        ("added", text.count(result["n_appended"]) if "n_appended" in result else None),
        ("features", text.count(result["n_features"])),
        ("entries", text.count(result["nnz"])),
        ("labels", text.listed(result["labels"]) if result.get("labels") else None),
        ("weights", f"from {result['weights_from']}" if result["weights_from"] else "none"),
        ("size", show_bytes(result["bytes"])),
        ("memory", text.memory(result["memory"])),
        ("time", text.seconds({"total": result["seconds"], "compile": result["compile_seconds"]})),
    ]
    return session.finish(result, f"{text.label(store)}\n" + text.rows(lines), made=True)


def _with_both(named: Path) -> str:
    """The probable command of a user who named either rows or a store alone."""
    return (
        f"bigsvm ingest {named} {named.name.split('.')[0]}.zarr"
        if named.is_file()
        else f"bigsvm ingest ROWS.svm {named}"
    )


def _compact(session: Session, sources: tuple[str, ...], store: Path) -> int:
    """Delete the old versions that a store keeps for its readers."""
    if sources:
        raise UsageError("--compact takes a STORE, and no SRC", hint=f"bigsvm ingest --compact {store}")
    from bigsvm.store.ingest.appending.commit import compact

    result = compact(store)
    return session.finish(
        result, f"{text.label(store)}\n" + text.rows([("freed", show_bytes(result["freed_bytes"]))]), made=True
    )
