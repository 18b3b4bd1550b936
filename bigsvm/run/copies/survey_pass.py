"""A reading of all rows for what only reading tells: content fingerprint, entries, class counts."""

from __future__ import annotations

import time
from typing import NamedTuple

from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.solvers.base import Mapper
from bigsvm.store.blocks import BlockRef, RowBlocks
from bigsvm.store.survey import Survey


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
    survey, refs = Survey(), store.refs(block_rows)
    shares = (SurveyShare(store, ref) for ref in refs)
    for ref, seen in zip(refs, mapper.map(survey_block, shares), strict=True):
        survey.merge(seen)
        emit(WorkAdvanced("survey", ref.stop))
    emit(WorkEnded("survey", time.monotonic() - began))
    return survey
