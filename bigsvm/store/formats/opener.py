"""`open_store`: from a path, a URI, arrays or a collection to an open store of the right format."""

from __future__ import annotations

import functools
import glob
import importlib.metadata
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from bigsvm.errors import BigSVMError, NoSuchColumn, UsageError
from bigsvm.files.paths import SCHEMES, STORE_MARKS, given_as, no_such_store, rename
from bigsvm.store.blocks import RowBlocks, StoreBase
from bigsvm.store.formats.not_readable import REMEDIES, not_readable, refuse_partitions
from bigsvm.store.formats.tables.table_names import (
    PARQUET,
    SUFFIXES,
    kind_of_table,
    telling_of_others,
    told_of_nested,
)
from bigsvm.store.identity import Identity
from bigsvm.store.labels import ColumnName, Missing, Task
from bigsvm.store.remote.names import is_remote, without_secrets
from bigsvm.store.remote.settings import storing
from bigsvm.store.sealing.places import naming
from bigsvm.store.sealing.seal import EmptyChunks
from bigsvm.store.transforms.label_sets import LABEL_SETS
from bigsvm.store.transforms.scaling import SCALES, Scale
from bigsvm.units import as_names, counted

ENTRY_POINTS = "bigsvm.stores"
"""Entry point group of formats in other packages: name = file suffix without dot, or URI scheme; object = a callable
(path, *, label, weight, task) -> RowBlocks."""

_TEXT = (".svm", ".svmlight", ".libsvm", ".txt", ".dat", ".npz", ".npy")
_STORES = (".zarr", ".parquet", ".pq", ".zip")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


def open_store(
    source: Any,
    *,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    weight: str | None = None,
    task: Task = "auto",
    empty_chunks: EmptyChunks = "refuse",
    labelled: bool = True,
    matrix: str | None = None,
    columns: str | Sequence[str] = (),
    hash_bits: int | None = None,
    missing: Missing = "refuse",
    scale: Scale | None = None,
    normalize: str | None = None,
    rows: str | None = None,
    split: float | Literal["recorded"] | None = None,
    part: Literal["train", "test"] | None = None,
    positive: str | None = None,
    label_map: Mapping[str, str] | None = None,
    like: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RowBlocks:
    """Open rows for reading.

    Parameters
    ----------
    source : a Zarr folder; Parquet, .csv, .tsv, .arrow or .feather: a file, a folder of them or a glob, as str or path,
        or as URI in a bucket (s3://, gs://, az://) or on a web server; (X, y) or (X, y, weight) arrays; or an open
        store, which is returned as it is (a store over arrays sees their present values)
    label, weight : names of the columns; for a table also their numbers, from 0.  Default: `label`, and `weight` if
        there is such a column; with `like` the columns of that model's labels and weights, if there are any of their
        names.  weight='' reads no weights, whatever there is
    labels : for rows with several labels, or none: names of columns of true and false, or 0 and 1, one for each label;
        or the name of one text column such as `1,5`, which lists the labels of a row.  For arrays y may be a matrix of
        0 and 1
    task : `regression` keeps numeric labels as targets; `auto` takes whole numbers as classes
    empty_chunks : what to do about chunks that are missing from an unsealed Zarr store: `refuse`, or `zeros`, by which
        you vouch that they hold the fill value (zarr by default does not write such chunks).  Remembered until the
        store changes
    labelled : False for prediction: labels and weights are not needed, and columns with their names are not features
    matrix : for AnnData: X, layers/NAME, obsm/NAME or raw/X
    columns : the feature columns of a table or of Parquet, by name or by shell pattern such as `x*`, as a list or as
        text: `x*,age`.  For text without a header the names of all columns, or `numbers`
    hash_bits : hash the values of text columns to 2^hash_bits shared features; None: one feature for each value
    missing : rows without a label are refused; `drop` leaves them out
    scale : maxabs divides each column by its largest |value|, found in one pass; unit-norm divides each row by its
        norm; standard brings columns to mean 0 and standard deviation 1, without filling up sparse rows
    normalize : steps before scaling: total=1e4 scales each row to that sum, log1p takes log(1 + x); e.g.
        total=1e4,log1p
    rows : a condition on columns of obs or of the table, such as "cell_type in (T, B) and n_genes > 500"; only rows
        that meet it are read, and only their classes.  A row that lacks a value needed for the decision is left out.
        Text is in quotes, a column name with blanks in back-ticks
    split : the share of rows to train on, selected by a hash of their numbers; the others are held out.  1 and None
        take all rows.  `recorded` takes the share that a store given by its path records (`bigsvm ingest --split`), or
        all
    part : `train` or `test` of a split; with `like`, of the split of that model.  None takes all rows
    positive : the label of one class; all other classes become one, and labels become True and False
    label_map : new names of labels; labels with the same new name become one class.  Applied before `positive`
    like : `model.about["rows"]`: read columns and matrix as they were read for the training of that model
    storage_options : for s3://, gs://, az://, by the names of obstore: endpoint, region, ...; everything else comes
        from the environment.  The values appear in no record and no message

    Raises
    ------
    UsageError : this kind of source cannot be opened.  MissingInput : the source does not exist.
    DataError : the source is damaged or unsuitable.
    """
    asked = dict(locals())  # must be the first statement: it takes the arguments only
    del asked["source"], asked["storage_options"]
    if isinstance(source, tuple) and weight == "":
        source, weight = source[:2], None
    if scale not in (None, *SCALES):
        raise UsageError(f"unknown scale {scale!r}", hint=f"one of {', '.join(SCALES)}")
    kept = (like or {}).get(LABEL_SETS) if not isinstance(source, tuple) else None
    columns, labels = as_names(columns), None if labels is None else as_names(labels)
    if labels and label is not None:
        raise UsageError(
            "--label and --labels exclude each other", hint="use --labels A,B for rows with several labels"
        )
    if labels and (positive is not None or label_map):
        raise UsageError("--positive and --label-map are for rows with one label", hint="leave out --labels")
    if not labels and kept is not None and (label is None or not labelled):
        labels = kept["columns"]  # None for one text column, which is used by its name
    if labels and labelled:
        label = labels[0]
    options: dict[str, Any] = {"label": label, "weight": weight, "task": task}
    chosen = {"matrix": matrix, "columns": columns, "hash_bits": hash_bits, "missing": missing, "like": like}
    chosen["filtered"] = rows is not None
    chosen["apart"] = tuple(labels or ())
    chosen["sets"] = labelled and (len(labels) == 1 if labels else kept is not None)
    with storing(storage_options):
        store = _open_as_trained(source, options, empty_chunks, labelled, chosen)
    if rows is not None:
        from bigsvm.store.formats.chosen.filtered_rows import (
            filtered,
        )  # here and below: imported when needed, because few need it

        store = filtered(store, rows, missing if labelled else None)
    if labelled and (labels or kept is not None) and LABEL_SETS not in store.recipe:
        from bigsvm.store.transforms.set_rows import ColumnSetRows, SetRows

        several = labels is not None and len(labels) > 1
        names = None if kept is None else kept["names"]
        store = cast(RowBlocks, ColumnSetRows(store, labels) if several and labels else SetRows(store, names))
    if positive is not None or label_map or (labelled and like and "labels" in like):
        from bigsvm.store.transforms.relabelled import relabelled

        store = relabelled(store, positive, label_map, like)
    if split is not None or part is not None:
        from bigsvm.store.formats.chosen.split_rows import split as chosen_of

        named = isinstance(
            source, str | os.PathLike
        )  # `recorded` applies to paths: whoever opened a store has chosen already
        store = chosen_of(store, None if split == "recorded" and not named else split, part, like)
    if normalize is not None or (like and "normalize" in like):
        from bigsvm.store.transforms.normalize import normalized

        store = normalized(store, normalize, like)
    if scale not in (None, "none") or (like and "scale" in like):
        from bigsvm.store.transforms.scaled_rows import scaled

        store = scaled(store, scale, like)
    if isinstance(source, tuple) or (store is not source and getattr(source, "given", None) is not None):
        _watch(store, source, asked)
    return store


def _watch(store: Any, source: Any, asked: dict[str, Any]) -> None:
    """Let `store` be reopened when somebody changes the arrays that it is made of.

    source : the arrays, or a store over them;  asked : the arguments of `open_store`
    """
    from bigsvm.store.formats.given_arrays import GivenArrays

    if isinstance(source, tuple):
        rows = store
        while hasattr(rows, "below"):
            rows = rows.below
        several = LABEL_SETS in store.recipe
        store.given = GivenArrays.of(source, rows, several, lambda arrays: open_store(arrays, **asked))
    elif store.given is None:
        store.given = source.given.below(lambda rows: open_store(rows, **asked))


def _open_as_trained(
    source: Any, options: dict[str, Any], empty_chunks: EmptyChunks, labelled: bool, chosen: dict[str, Any]
) -> RowBlocks:
    """`_open`; labels and weights that no option names are those of the model's columns, if there are such columns."""
    kept = (chosen["like"] or {}) if labelled and isinstance(source, str | os.PathLike) else {}
    asked = [name for name in ("label", "weight") if options[name] is None and kept.get(f"{name}_column")]
    ours = {name: ColumnName(kept[f"{name}_column"]) for name in asked}
    while True:
        try:
            return _open(source, {**options, **ours}, empty_chunks, labelled, chosen)
        except NoSuchColumn as error:
            there = {name: column for name, column in ours.items() if column != error.column}
            if len(there) == len(ours):
                raise
            ours = there


def _open(
    source: Any, options: dict[str, Any], empty_chunks: EmptyChunks, labelled: bool, chosen: dict[str, Any]
) -> RowBlocks:
    if isinstance(source, tuple):
        for name in ("label", "weight"):
            if options[name] is not None and not (name == "label" and chosen["apart"]):
                what = f"arrays have no column {options[name]!r} of {name}s"
                raise UsageError(what, hint="pass (X, y) or (X, y, sample_weight)")
        if len(source) not in (2, 3):
            raise UsageError(
                f"a tuple of {counted(len(source), 'array')} cannot be opened",
                hint="pass (X, y) or (X, y, sample_weight)",
            )
        from bigsvm.store.formats.array_rows import (
            ArrayRows,
        )  # here and below: import only the library of the format at hand

        if len(getattr(source[1], "shape", ())) == 2 and source[1].shape[1] > 1:
            if options["task"] == "regression":
                what = f"y has {source[1].shape[1]} columns, and a regression has one target a row"
                raise UsageError(what, hint="fit each column of y alone")
            from bigsvm.store.transforms.set_rows import of_indicator

            Y = source[1].toarray() if hasattr(source[1], "toarray") else np.asarray(source[1])
            weight = source[2] if len(source) == 3 else None
            return of_indicator(
                source[0], Y, weight, lambda *parts: cast(RowBlocks, ArrayRows(*parts, task="classification"))
            )
        return cast(RowBlocks, ArrayRows(*source, task=options["task"]))
    if isinstance(source, str | os.PathLike):
        if "://" not in (name := os.fspath(source)):
            given_as(name)
        return _open_path(name, options, empty_chunks, labelled, chosen)
    # Test the class: hasattr on the instance would evaluate `classes`, which reads all labels.
    if all(hasattr(type(source), name) for name in ("refs", "read")):
        if not isinstance(source, StoreBase):
            hint = "derive it from bigsvm.store.blocks.StoreBase"
            raise UsageError(f"a {type(source).__name__} is not a store", hint=hint)
        if not isinstance(getattr(source, "identity", None), Identity):
            hint = "give it an attribute `identity`, a bigsvm.store.identity.Identity"
            raise UsageError(f"a {type(source).__name__} does not identify its rows", hint=hint)
        for name in ("label", "weight"):
            asked = options[name] if name == "weight" or not chosen["apart"] else None
            if asked or (asked == "" and getattr(source, "has_weights", False)):
                hint = f"in Python open_store(..., {name}=...) opens rows with other {name}s"
                raise UsageError(f"--{name} does not apply to an open store", hint=hint)
        return cast(RowBlocks, source.as_now())
    raise UsageError(f"cannot open a {type(source).__name__}", hint="pass a path, or (X, y) arrays")


def _further_formats() -> importlib.metadata.EntryPoints:
    """Entry points of formats in other packages.

    The installed packages are searched again only if a folder of `sys.path` has changed, because a search takes ten
    milliseconds, more than opening a small store.
    """
    return _formats_in(tuple((folder, _changed(folder)) for folder in sys.path))


@functools.lru_cache(maxsize=1)
def _formats_in(folders: tuple[tuple[str, int], ...]) -> importlib.metadata.EntryPoints:
    return importlib.metadata.entry_points(group=ENTRY_POINTS)


def _changed(folder: str) -> int:
    """Time in nanoseconds of the last change to the entries of a folder; 0 if the folder does not exist."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def _open_path(
    name: str, options: dict[str, Any], empty_chunks: EmptyChunks, labelled: bool, chosen: dict[str, Any]
) -> RowBlocks:
    scheme, separator, rest = name.partition("://")
    kind = scheme if separator else Path(name).suffix.lstrip(".")
    for entry in _further_formats() if kind else ():
        if entry.name == kind:
            return entry.load()(name, **options)
    if is_remote(name):
        return _open_remote(name, options, empty_chunks, labelled, chosen)
    if separator:
        if scheme != "file":
            known = ", ".join(f"{known}://" for known in SCHEMES)
            raise UsageError(f"the scheme {scheme}:// is not supported", name, f"use one of {known}, or a local path")
        name = rest
    path = Path(name)
    options = {**options, "labelled": labelled}
    is_h5 = path.suffix.lower() == ".h5ad"
    if _is_store(path) or is_h5:
        _refuse_chosen(chosen, ("columns", "hash_bits"), "is for tables: .csv, .tsv, .arrow, .feather, Parquet", name)
        options["matrix"] = chosen["matrix"] or (chosen["like"] or {}).get("matrix")
        if is_h5:
            from bigsvm.store.formats.h5ad_rows import H5adRows

            with naming(name):
                return _with_labels(partial(H5adRows, path, **options), labelled, chosen)
        from bigsvm.store.formats.zarr_rows import ZarrRows

        with naming(name):
            return _with_labels(partial(ZarrRows, path, **options, empty_chunks=empty_chunks), labelled, chosen)
    kind_of_rows = None if _is_parquet(path) else kind_of_table(name)
    if kind_of_rows is not None and (path.exists() or any(mark in path.name for mark in "*?[")):
        from bigsvm.store.formats.tables.table_rows import TableRows

        _refuse_chosen(chosen, ("matrix",), "is for AnnData", name)
        table = {name: chosen[name] for name in ("columns", "hash_bits", "like", "apart", "sets")}
        with telling_of_others(name, SUFFIXES[kind_of_rows]):
            return _with_labels(partial(TableRows, name, **options, **table), labelled, chosen)
    if path.exists():
        options_of_tables = ("hash_bits",) if _is_parquet(path) else ("columns", "hash_bits")
        _refuse_chosen(chosen, ("matrix", *options_of_tables), "is not for this kind of file", name)
    if _is_parquet(path):
        from bigsvm.store.formats.parquet_rows import ParquetRows

        table = {name: chosen[name] for name in ("apart", "columns", "like")}
        with telling_of_others(name, PARQUET):
            return _with_labels(partial(ParquetRows, name, **options, **table), labelled, chosen)
    if path.exists() and labelled and chosen["missing"] == "drop":
        _refuse_chosen(chosen, ("missing",), "is not for it", name)
    if not path.exists():
        raise no_such_store(name)
    if path.is_file():
        suffix = _suffix_of(path)
        if suffix in REMEDIES:
            raise not_readable(name, suffix)
        if not suffix or suffix in _TEXT:
            stem = path.name
            while Path(stem).suffix.lower() in (*_COMPRESSED, *_TEXT) and Path(stem).stem != stem:
                stem = Path(stem).stem
            raise UsageError("not a store", name, f"ingest it first: bigsvm ingest {name} {stem}.zarr")
    if path.is_dir():
        refuse_partitions(name)
    raise UsageError(
        "not a store of a known kind",
        name,
        "use a Zarr folder, Parquet, .csv, .tsv, .arrow or .feather, or convert other files with bigsvm ingest",
    )


def _with_labels(opened: Callable[..., Any], labelled: bool, chosen: dict[str, Any]) -> RowBlocks:
    """Open a store; with missing=drop without its rows that lack a label.

    opened : a function of `missing` that opens the store
    """
    # With --rows only the labels and weights of selected rows are checked; the others are irrelevant.
    if labelled and chosen["filtered"]:
        return opened(missing="drop")
    if not labelled or chosen["missing"] == "refuse":
        return opened(missing="refuse")
    from bigsvm.store.formats.kept_rows import labelled_only

    store = opened(missing="drop")
    kept = labelled_only(store)
    return opened(missing="refuse") if kept is store else kept


def _open_remote(
    name: str, options: dict[str, Any], empty_chunks: EmptyChunks, labelled: bool, chosen: dict[str, Any]
) -> RowBlocks:
    """Open rows in a bucket or behind http: copy what is needed to the cache, then open the copy."""
    name = without_secrets(name)
    suffix = _suffix_of(Path(name))
    if suffix in REMEDIES:
        raise not_readable(name, suffix)
    if suffix in _TEXT:  # checked before anything is copied
        stem = Path(name).name.split(".")[0]
        raise UsageError("not a store", name, f"ingest it first: bigsvm ingest {name} {stem}.zarr")
    from bigsvm.store.remote.bring import bring

    matrix = chosen["matrix"] or (chosen["like"] or {}).get("matrix") or "X"
    brought = bring(name, matrix)
    try:
        store: Any = _open_path(brought.path, options, empty_chunks, labelled, chosen)
    except BigSVMError as error:
        brought.kept.close()
        raise rename(error) from None
    except BaseException:
        brought.kept.close()
        raise
    store.brought = brought  # keeps the copy alive as long as the store, and goes with copies of the store
    weakref.finalize(brought, brought.kept.close)
    unsealed = f"{name}: was not sealed: while it was copied, its content was checked only against sizes and ETags"
    warnings = [unsealed if "was not sealed" in text else brought.renamed(text) for text in store.warnings]
    store.warnings = warnings + told_of_nested(name, brought.nested)
    return store


def _refuse_chosen(chosen: dict[str, Any], options: tuple[str, ...], why: str, name: str) -> None:
    """Raise UsageError if an option was given that does not apply to this kind of source."""
    for option in options:
        if chosen[option]:
            raise UsageError(f"--{option.replace('_', '-')} {why}", name, "leave it out")


def _suffix_of(path: Path) -> str:
    """The last suffix that tells the format, in lower case: that of `rows.svm.gz` is .svm; '' without one."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in _COMPRESSED), "")


def _is_store(path: Path) -> bool:
    return path.is_dir() and any((path / mark).exists() for mark in STORE_MARKS)


def is_text(name: str) -> bool:
    """Whether a source of rows is svmlight text: standard input, or a file whose name indicates no other format."""
    path = Path(name)
    if name == "-":
        return True
    suffix = _suffix_of(path)
    other = suffix in (*_STORES, ".npz", ".npy", *REMEDIES)
    other = other or kind_of_table(name) is not None or path.suffix.lower() == ".h5ad"
    if is_remote(name):
        compressed = path.suffix.lower() in _COMPRESSED
        return not other and (suffix in _TEXT or compressed)
    return not other and path.exists() and not path.is_dir()


def check_text(label: str | None, weight: str | None, chosen: Mapping[str, Any]) -> None:
    """Raise UsageError for options that name columns, if the source is svmlight text, which has no columns."""
    if label is not None or weight:
        raise UsageError("svmlight text contains its labels, and has no weights", hint="leave out --label and --weight")
    for name in chosen:
        raise UsageError(f"--{name.replace('_', '-')} does not apply to svmlight text", hint="leave it out")


def _is_parquet(path: Path) -> bool:
    if any(mark in path.name for mark in "*?["):
        return any(Path(found).suffix.lower() in PARQUET for found in glob.glob(str(path)) or [str(path)])
    if path.is_dir():
        return any(found.suffix.lower() in PARQUET and found.name[0] not in "._" for found in path.iterdir())
    return path.is_file() and path.suffix.lower() in PARQUET
