"""The rows of a fit, as its plan wants them: in memory, as a working copy, or straight from the store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.files.packed_text import text_bytes
from bigsvm.machine import trim_heap
from bigsvm.run.copies.staging import staged
from bigsvm.run.copies.survey_pass import survey_pass
from bigsvm.run.fit.plan import RESIDENT_DATA, Plan
from bigsvm.run.fit.sizes import FIXED
from bigsvm.store.blocks import Block, RowBlocks
from bigsvm.store.copy.near_rows import NearRows
from bigsvm.store.resident import ResidentRows
from bigsvm.store.survey import Survey
from bigsvm.tasks import Mapper
from bigsvm.units import MIB


@contextmanager
def open_rows(
    store: RowBlocks,
    plan: Plan,
    config: FitConfig,
    scratch: Path,
    budget: MemoryBudget,
    mapper: Mapper,
    emit: Emit,
) -> Iterator[tuple[RowBlocks, Survey]]:
    """The rows as the plan wants them (in memory, staged or straight from the store), and their survey."""
    if plan.mode == "resident":
        with budget.reserve(RESIDENT_DATA, plan.window_bytes):
            rows, survey = ResidentRows(store, plan.piece_rows), Survey()

            def seen(block: Block) -> None:
                survey.add(block, store.classes)
                emit(WorkAdvanced("reading", block.stop))

            began = time.monotonic()
            emit(WorkStarted("reading", store.n_samples, "rows"))
            rows.load(seen)
            _settle(store)
            emit(WorkEnded("reading", time.monotonic() - began))
            yield rows, survey
    elif plan.mode == "staged":
        limit = config.scratch_limit_bytes()
        with staged(
            store,
            scratch,
            plan.block_rows,
            plan.piece_rows,
            plan.data_bytes,
            limit,
            mapper,
            emit,
            plan.staging_workers,
            max(plan.budget_bytes - FIXED - text_bytes(store.feature_names), MIB),
        ) as copy:
            _settle(store)
            near = config.worker_scratch is not None and not mapper.in_process
            yield (NearRows(copy.folder, config.worker_scratch or "") if near else copy), copy.survey
    else:
        yield store, survey_pass(store, plan.block_rows, mapper, emit)


def _settle(store: RowBlocks) -> None:
    """The store has been read: what it and the C library keep for more reading is needed elsewhere."""
    store.forget()
    trim_heap()
