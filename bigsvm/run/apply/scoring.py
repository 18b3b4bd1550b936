"""Streaming scores of the rows of a store or of text: common to prediction and evaluation.

Blocks go through a mapper, results come back in row order, and only the blocks in flight are held.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.compile_in_child import compiled_in_child
from bigsvm.compiled.shared.rows import CSR, take_rows
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.files.packed_text import text_bytes
from bigsvm.machine import core_count, memory_limit, return_freed_memory
from bigsvm.model.linear_model import Model
from bigsvm.model.model_rows import check_alike
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks, row_bytes, tile
from bigsvm.store.delegated import check_unchanged
from bigsvm.store.labels import as_labels, scan_classes
from bigsvm.store.precompile_reading import precompile_reading
from bigsvm.store.text.label_fields import LabelFields
from bigsvm.store.text.svmlight import Chunk, read_chunks
from bigsvm.store.text.text_files import Piece, line_limit, read_pieces
from bigsvm.store.text.unpacking import unpacking_bytes
from bigsvm.store.transforms.label_sets import LABEL_SETS, split_set
from bigsvm.store.transforms.recipe import Recipe
from bigsvm.store.transforms.relabelled import Relabel
from bigsvm.tasks import Mapper, over_shares
from bigsvm.units import KIB, MIB, counted

_LARGEST_BLOCK = 8 * MIB
_FIXED = 4 * MIB
"""Bytes of file buffers, codecs and everything else that does not depend on the data."""
_LEAST_PIECE, _LARGEST_PIECE = 64 * KIB, 4 * MIB
_PARSED = 7
"""Upper bound of the bytes of a piece of text and its parsed rows, for each byte of text."""
_NAMELESS = "the rows have no feature names, but the model does: features are taken in the model's order"
_PYTHON_ROW = 256
"""Bytes of the short-lived Python objects that a row needs while it is written as text."""


class Scorer(Protocol):
    """The part of a model that a task needs (`scorer` of both kinds): scores of rows whose width was checked."""

    @property
    def n_features(self) -> int: ...
    def scores(self, X: Matrix) -> np.ndarray: ...


class StoreShare(NamedTuple):
    """The input of a task that scores a block of a store."""

    data: RowBlocks
    ref: BlockRef
    scorer: Scorer


class TextShare(NamedTuple):
    """The input of a task that scores parsed rows of text."""

    start: int
    chunk: Chunk
    scorer: Scorer


class Scored(NamedTuple):
    """Rows [start, start + n) with their scores.

    scores : float64, shape (n, n_models)
    y : class codes or targets of the block, or the labels in the text (float64)
    sample_weight : float64, shape (n,), or None for ones
    """

    start: int
    scores: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None


def score_block(share: StoreShare) -> Scored:
    """Task: score a block of a store.  A pure function."""
    block = share.data.read(share.ref)
    scores = score_rows(block.X, share.scorer, share.data.uri, block.start)
    return Scored(block.start, scores, block.y, block.sample_weight)


def score_chunk(share: TextShare) -> Scored:
    """Task: score parsed rows of text.  A pure function."""
    chunk = share.chunk
    return Scored(share.start, score_rows(chunk.X, share.scorer, chunk.where, 0), chunk.labels, None)


def score_rows(X: Matrix, scorer: Scorer, where: str, first_row: int) -> np.ndarray:
    """Scores, float64, shape (n_rows, n_models).  Features that sparse rows lack count as 0.

    Raises DataError naming a row with a feature beyond the model's, or if dense rows have another width.
    """
    width = scorer.n_features
    if isinstance(X, CSR):
        if int(X.indices.max(initial=-1)) >= width:
            place = int(np.argmax(X.indices >= width))
            row = first_row + int(np.searchsorted(X.indptr, place, "right")) - 1
            raise DataError(
                f"row {row} has feature {X.indices[place]} but the model has only {counted(width, 'feature')} (from 0)",
                where,
                f"ingest the training rows with --n-features {int(X.indices.max()) + 1} or more, and fit again",
            )
    elif X.shape[1] != width:
        raise DataError(f"the rows have {counted(X.shape[1], 'feature')} and the model {width}", where)
    return scorer.scores(X)


def precompile_scoring(
    layout: str, dtype: np.dtype, index_dtype: np.dtype, model: Model, emit: Emit = silent, entries: int | None = None
) -> None:
    """Compile or load the code that scores this kind of data, before memory is measured.

    entries : upper bound of the number of entries in the data, if known: for few entries no code is compiled
    """
    if entries is not None and entries * model.n_models < model.compiled_from:
        return
    scorer = model.tiny().scorer()
    n = -(-model.compiled_from // model.n_models)  # with a single feature each
    X: Matrix = np.zeros((n, 1), dtype)
    if layout == "csr":
        X = CSR(np.zeros(n, dtype), np.zeros(n, index_dtype), np.arange(n + 1, dtype=np.int64))
    kind = ("scores", layout, dtype.name, index_dtype.name, model.n_models, *model.kinds)
    compiled_in_child(kind, lambda: score_rows(X, scorer, "", 0), emit=emit)


def precompile_scoring_of(store: RowBlocks, model: Model, emit: Emit = silent) -> None:
    """The same for the rows of a store, including the code that reads them."""
    precompile_reading(store, emit)
    precompile_scoring(store.layout, store.dtype, store.index_dtype, model, emit, most_entries(store))


def most_entries(store: RowBlocks) -> int:
    """Upper bound of the entries of the rows as they are scored; an empty row counts as one."""
    entries = store.n_samples * store.n_features if store.nnz is None or store.layout == "dense" else store.nnz
    return entries + store.n_samples


def text_dtype(model: Model) -> np.dtype:
    """The dtype in which text is read for `model`: that of its training data, or float32 if it is unknown.

    So the same rows get the same scores from text and from a store made of it.  The models of LIBLINEAR and LIBSVM do
    not record it, but these programs read text as float64.
    """
    unknown = "float64" if "imported" in model.about else "float32"
    return np.dtype(np.float64 if model.about.get("dtype", unknown) == "float64" else np.float32)


def budget_of(config: FitConfig) -> MemoryBudget:
    """The memory budget that `config` asks for, on this machine."""
    return_freed_memory()
    return MemoryBudget(config.memory_bytes(memory_limit().nbytes))


class Reading(NamedTuple):
    """How a store is read within a budget: rows of a block, and number of blocks that are read at the same time."""

    block_rows: int
    threads: int


def plan_reading(store: RowBlocks, model: Model, budget: MemoryBudget, config: FitConfig) -> Reading:
    """Choose block size and threads so that everything in flight (blocks, scores, text, chunks) fits the free budget.

    Raises BudgetExceeded if even single rows on one thread do not fit.
    """
    a_row = int(row_bytes(store)) + _score_bytes(_n_scores(model))
    # A reader holds the decoded chunks of its rows, one stored chunk, and temporary kernel values.
    chunks = int(1.5 * store.chunk_nbytes) + model.scoring_bytes
    fixed = _FIXED + text_bytes(store.feature_names)
    threads = config.threads or core_count()
    while True:
        copies = 2 * _in_flight(threads)  # decoding takes about as much again
        held = threads * chunks
        if threads == 1 or (held <= budget.free // 2 and fixed + held + copies * a_row <= budget.free):
            break
        threads -= 1
    with budget.reserve("blocks being scored", fixed + threads * chunks + copies * a_row):
        pass
    room = (budget.free - fixed - threads * chunks) // copies
    return Reading(max(1, min(store.n_samples, _LARGEST_BLOCK // a_row, room // a_row)), threads)


def least_of_store(store: RowBlocks, model: Model) -> int:
    """Bytes that `plan_reading` needs for single rows on one thread."""
    return least_of_rows(store, _n_scores(model)) + model.scoring_bytes


def least_of_rows(store: RowBlocks, n_scores: int) -> int:
    """The same for linear models with `n_scores` scores for each row."""
    fixed = _FIXED + text_bytes(store.feature_names) + int(1.5 * store.chunk_nbytes)
    return fixed + 2 * _in_flight(1) * (int(row_bytes(store)) + _score_bytes(n_scores))


def least_of_text(model: Model, threads: int = 1) -> int:
    """Bytes that `plan_text` needs for pieces of the least size and single rows on so many threads."""
    a_row = _score_bytes(_n_scores(model))
    return _FIXED + threads * model.scoring_bytes + _in_flight(threads) * (_PARSED * _LEAST_PIECE + 2 * a_row)


class TextReading(NamedTuple):
    """How text is read within a budget: bytes of a piece, rows of a block, and number of threads that score."""

    piece_bytes: int
    block_rows: int
    threads: int


def plan_text(model: Model, budget: MemoryBudget, config: FitConfig) -> TextReading:
    """Choose pieces, blocks and threads so that text, parsed rows and scores fit the free budget.

    Raises BudgetExceeded if even single rows on one thread do not fit.
    """
    a_row = _score_bytes(_n_scores(model))
    threads = config.threads or core_count()
    while threads > 1 and least_of_text(model, threads) > budget.free:
        threads -= 1
    with budget.reserve("text being scored", least_of_text(model, threads)):
        pass
    spare = (budget.free - _FIXED - threads * model.scoring_bytes) // _in_flight(threads)
    piece = max(_LEAST_PIECE, min(_LARGEST_PIECE, spare // 2 // _PARSED))
    rows = min(_LARGEST_BLOCK // a_row, (spare - _PARSED * piece) // (2 * a_row))
    return TextReading(piece, max(1, rows), threads)


def _in_flight(threads: int) -> int:
    """Blocks that are held at one time: read or parsed, scored, waiting or being written."""
    return threads + 3


def _n_scores(model: Model) -> int:
    """Scores of a row: of the models, and of the classes that pairs vote for."""
    return model.n_models + model.pairs * len(model.classes)


def _score_bytes(n_scores: int) -> int:
    """Bytes of the scores of a row until they are written."""
    return 24 * n_scores + _PYTHON_ROW


def score_store(
    store: RowBlocks,
    model: Model,
    mapper: Mapper,
    block_rows: int,
    emit: Emit = silent,
    what: str = "scoring",
) -> Iterator[Scored]:
    """Scores of all rows of a store, block by block, in order.

    Raises
    ------
    DataError : a row has more features than the model, dense rows have fewer, or the store is damaged.
    """
    known = model.about.get("rows", {})
    check_alike(known, store)
    if known.get("features") and store.feature_names is None:
        emit(Warned(_NAMELESS))
    model.check_centred(store.layout, store.uri)
    if store.layout == "dense" and store.n_features != model.n_features:
        raise DataError(
            f"the rows have {counted(store.n_features, 'feature')} and the model {model.n_features}",
            store.uri,
            "was it trained on other columns?  Name columns that are not features with --label or --weight",
        )
    if not model.takes_narrower and store.n_features != model.n_features:
        raise DataError(
            f"a row has {store.n_features} kernel values, but the model was trained on {model.n_features} rows",
            store.uri,
        )
    scorer = model.scorer()
    found = over_shares(mapper, score_block, store.refs(block_rows), lambda ref: StoreShare(store, ref, scorer))
    yield from _watched((scored for _, scored in found), emit, what, store.n_samples)
    check_unchanged(store)


def score_text(
    source: str,
    model: Model,
    mapper: Mapper,
    budget: MemoryBudget,
    reading: TextReading,
    zero_based: bool = False,
    emit: Emit = silent,
    what: str = "scoring",
    labelled: bool = False,
) -> Iterator[Scored]:
    """Scores of the rows of svmlight text (`-`: standard input), in order.

    reading : from `plan_text`
    labelled : whether to return labels; otherwise lines need none

    Raises
    ------
    DataError : the text is bad, or a row has more features than the model; names file and line.
    """
    if model.about.get("rows", {}).get("features"):
        emit(Warned(_NAMELESS))
    model.check_centred("csr", source)
    scorer, recipe = model.scorer(), Recipe.of(model.about.get("rows", {}))

    def placed() -> Iterator[tuple[int, Chunk]]:
        start = 0
        for chunk in read_chunks(
            _pieces(source, budget, reading.piece_bytes),
            dtype=text_dtype(model),
            zero_based=zero_based,
            n_features=model.n_features,
            unlabelled=not labelled,
            fields=LabelFields(asked=labelled) if model.multi_label else None,
        ):
            changed = recipe.apply(chunk.X, chunk.where, start)
            assert isinstance(changed, CSR)
            # Lines can be so short that their scores take a thousand times more bytes than their text.
            for first, stop in tile(len(chunk.labels), reading.block_rows):
                part = chunk._replace(X=take_rows(changed, first, stop), labels=chunk.labels[first:stop])
                yield start + first, part
            start += len(chunk.labels)

    found = over_shares(mapper, score_chunk, placed(), lambda piece: TextShare(piece[0], piece[1], scorer))
    yield from _watched((scored for _, scored in found), emit, what, 0)


class TextLabels(NamedTuple):
    """The labels of svmlight text, found by reading them; has the fields of a store that evaluation needs.

    classes : labels in ascending order, as in the model; None for regression
    written, codes : labels as written in the text, ascending, and the class code of each
    recipe : says whether the classes are sets of labels
    """

    uri: str
    classes: np.ndarray | None
    n_samples: int
    has_weights: bool = False
    written: np.ndarray | None = None
    codes: np.ndarray | None = None
    recipe: Mapping[str, Any] = {}


def read_labels(source: str, model: Model, budget: MemoryBudget, zero_based: bool = False) -> TextLabels:
    """Read the labels of svmlight text, before it is scored.  Raises DataError naming file and line."""
    n_samples = 0
    with budget.reserve("unpacking the text", unpacking_bytes(source)):
        piece_bytes = max(
            _LEAST_PIECE, min(_LARGEST_PIECE, budget.free // 64)
        )  # several pieces are in flight at the same time

    def labels() -> Iterator[np.ndarray]:
        nonlocal n_samples
        fields = LabelFields() if model.multi_label else None
        for chunk in read_chunks(
            _pieces(source, budget, piece_bytes), dtype=text_dtype(model), zero_based=zero_based, fields=fields
        ):
            n_samples += len(chunk.labels)
            if fields is not None:
                yield np.array(sorted(set(chunk.labels.tolist())))
            elif not model.regression:
                yield as_labels(chunk.labels, source)

    written = scan_classes(labels(), "classification")
    if model.regression or written is None:
        return TextLabels(source, None, n_samples)
    if model.multi_label:
        sets = {"names": sorted({name for text in written.tolist() for name in split_set(str(text))})}
        return TextLabels(source, written, n_samples, recipe={LABEL_SETS: sets})
    kept = model.about.get("rows", {}).get("labels")
    classes, codes = (Relabel() if kept is None else Relabel.of(kept)).classes(written)
    return TextLabels(source, classes, n_samples, False, written, codes)


def _pieces(source: str, budget: MemoryBudget, piece_bytes: int) -> Iterator[Piece]:
    return read_pieces([source], piece_bytes=piece_bytes, line_bytes=line_limit(budget.limit))


def _watched(results: Iterable[Scored], emit: Emit, what: str, total: int) -> Iterator[Scored]:
    """Pass the results on, and emit progress events with their rows."""
    emit(WorkStarted(what, total, "rows"))
    began, done = time.monotonic(), 0
    for scored in results:
        yield scored
        done = scored.start + len(scored.scores)
        emit(WorkAdvanced(what, done))
    emit(WorkEnded(what, time.monotonic() - began))
