"""The check, by content, that the first rows of a store are those that an earlier model was trained on."""

from __future__ import annotations

import time

from bigsvm.errors import DataError
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.run.copies.survey_pass import SurveyShare, survey_block
from bigsvm.run.start.earlier import Earlier
from bigsvm.store.blocks import BlockRef, RowBlocks, row_bytes, tile
from bigsvm.store.survey import Survey
from bigsvm.tasks import Mapper, over_shares

CHECKING = "comparing rows"


def check_rows(earlier: Earlier, store: RowBlocks, piece_rows: int, mapper: Mapper, emit: Emit) -> None:
    """Compare the content fingerprint of the first rows with that of the rows that the model was trained on.

    If rows were added by `ingest --append`, the store's manifest has the fingerprint of the rows before.  Otherwise the
    first rows are read once.

    Raises DataError if they are other rows, or have another order, other labels or other weights.
    """
    assert earlier.alpha is not None
    n = earlier.alpha.shape[1]
    found = known_content(store, n) or read_content(store, n, piece_rows, mapper, emit)
    if found != earlier.content:
        raise DataError(
            f"the first {n} rows are not those of the model to start from: content {found}, not {earlier.content}",
            store.uri,
            "dual variables belong to rows: give the training store, with new rows only at its end, or use a solver "
            "that starts from weights",
        )


def read_content(store: RowBlocks, n: int, piece_rows: int, mapper: Mapper, emit: Emit) -> str:
    """The content fingerprint of the first n rows, computed by reading them."""
    began = time.monotonic()
    emit(WorkStarted(CHECKING, n, "rows"))
    survey, each = Survey(), row_bytes(store)
    refs = [BlockRef(start, stop, int(each * (stop - start))) for start, stop in tile(n, piece_rows)]
    for ref, seen in over_shares(mapper, survey_block, refs, lambda ref: SurveyShare(store, ref)):
        survey.merge(seen)
        emit(WorkAdvanced(CHECKING, ref.stop))
    emit(WorkEnded(CHECKING, time.monotonic() - began))
    return survey.content_fingerprint


def known_content(store: RowBlocks, n: int) -> str | None:
    """The content fingerprint of the first n rows, if the manifest of the store has it; else None."""
    if store.content_fingerprint is None:
        return None  # other columns were selected than those that the manifest describes
    if n == store.n_samples:
        return store.content_fingerprint
    for part in store.content.get("parts", ()):
        if part["n_samples"] == n:
            return str(part["content_fingerprint"])
    return None
