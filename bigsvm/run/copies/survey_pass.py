"""A reading of all rows for what only reading tells: content fingerprint, entries, class counts."""

from __future__ import annotations

import time
from typing import NamedTuple

from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.store.blocks import BlockRef, RowBlocks
from bigsvm.store.survey import Survey
from bigsvm.tasks import Mapper, over_shares


class SurveyShare(NamedTuple):
    """What a worker needs to survey one block."""

    data: RowBlocks
    ref: BlockRef


def survey_block(share: SurveyShare) -> Survey:
    """Task: the survey of one block.  Pure."""
    survey = Survey()
    survey.add(share.data.read(share.ref), share.data.classes)
    return survey


def survey_pass(store: RowBlocks, block_rows: int, mapper: Mapper, emit: Emit) -> Survey:
    """Survey all rows, block by block, wherever the mapper runs."""
    began = time.monotonic()
    emit(WorkStarted("survey", store.n_samples, "rows"))
    survey = Survey()
    for ref, seen in over_shares(mapper, survey_block, store.refs(block_rows), lambda ref: SurveyShare(store, ref)):
        survey.merge(seen)
        emit(WorkAdvanced("survey", ref.stop))
    emit(WorkEnded("survey", time.monotonic() - began))
    return survey
