"""The rows of svmlight text, for `ingest`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import take_rows
from bigsvm.errors import UsageError
from bigsvm.files.temporary import temporary_folder
from bigsvm.store.blocks import CompiledCall
from bigsvm.store.ingest.on_thread import on_thread
from bigsvm.store.ingest.sources.row_source import Rows, RowSource
from bigsvm.store.labels import Task
from bigsvm.store.text.compressed import total_bytes
from bigsvm.store.text.label_fields import LABELS_FIELD, LabelFields, in_parts
from bigsvm.store.text.svmlight import UNLIMITED, read_chunks
from bigsvm.store.text.text_files import PIECE_BYTES, line_limit, read_pieces
from bigsvm.store.text.unpacking import USUAL, unpacking_bytes
from bigsvm.store.transforms.label_sets import LABEL_SETS
from bigsvm.units import KIB

_QID_WARNING = "query ids (qid:) are ignored"


def text_source(
    paths: Sequence[str],
    *,
    dtype: str | None,
    zero_based: bool,
    n_features: int | None,
    memory: int | None,
    threads: int,
    warn: Callable[[str], None],
    sets: Mapping[str, Any] | None = None,
) -> RowSource:
    """The rows of svmlight text; one thread reads and decompresses while another one parses.

    sets : for rows with several labels: the entry `LABEL_SETS` of the store's recipe; None: one label for each row

    Raises
    ------
    MissingInput : a file is missing; and, while reading, whatever `read_pieces` and `read_chunks` raise.
    """
    unpacking = unpacking_bytes(paths)
    # Three pieces of text are held at a time, and the numbers of three, which take up to four times as much.
    piece_bytes = PIECE_BYTES if memory is None else min(PIECE_BYTES, max(64 * KIB, (memory - unpacking) // 32))
    out = np.dtype(dtype or "float32")
    size = total_bytes(paths)

    def rows() -> Generator[Rows, None, None]:
        pieces = read_pieces(paths, piece_bytes=piece_bytes, line_bytes=line_limit(memory))
        warned = False
        with on_thread(pieces) if threads > 1 else closing(pieces) as ahead:
            for chunk in read_chunks(
                ahead,
                dtype=out,
                zero_based=zero_based,
                n_features=UNLIMITED if n_features is None else n_features,
                fields=None if sets is None else LabelFields(sets["names"]),
            ):
                if chunk.qid and not warned:
                    warned = True
                    warn(_QID_WARNING)
                if sets is None:
                    yield Rows(chunk.X, chunk.labels, None, chunk.consumed)
                    continue
                for part, labels in in_parts(chunk.labels):
                    yield Rows(take_rows(chunk.X, part.start, part.stop), labels, None, chunk.consumed)

    return RowSource(
        ", ".join(paths), "csr", out, n_features, size, rows, 16 * 64 * KIB + unpacking,
        {} if sets is None else {LABEL_SETS: sets},
        remedy="a smaller --chunk-bytes" if unpacking <= USUAL else "unpack the text first",
        compiled_calls=[CompiledCall(("text", out.name), lambda: _parse_a_line(out))],
    )  # fmt: skip


def _parse_a_line(dtype: np.dtype) -> None:
    with temporary_folder() as folder:
        (folder / "line.svm").write_bytes(b"1 1:0.5 2:1\n")
        for _ in read_chunks(read_pieces([str(folder / "line.svm")], piece_bytes=64 * KIB), dtype=dtype):
            pass


def sets_asked(chosen: Mapping[str, Any], task: Task) -> dict[str, Any] | None:
    """The entry `LABEL_SETS` of the recipe for text with sets of labels, as asked, or as in the store; or None.

    Raises UsageError if the field of labels is called by another name, or the task is regression.
    """
    asked, kept = chosen.get("labels"), (chosen.get("like") or {}).get(LABEL_SETS)
    if asked and list(asked) != [LABELS_FIELD]:
        what = "a line of svmlight text has all its labels in one field, which is called label"
        raise UsageError(what, hint=f"--labels {LABELS_FIELD}")
    if asked and task == "regression":
        raise UsageError("--labels and --task regression exclude each other", hint="leave one of them out")
    if not asked and kept is None:
        return None
    return {"names": None, "columns": None} if kept is None else dict(kept)
