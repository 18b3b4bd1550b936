"""A store that is open over arrays has what they hold when it is used, whatever was made of them."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import bigsvm
from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.store.formats.opener import open_store

N, D = 40, 5
RNG = np.random.default_rng(3)
WHOLE = RNG.integers(1, 9, (N, D))  # above 0, so that every transform takes them
KINDS: dict[str, Callable[[], Any]] = {
    "float64": lambda: WHOLE.astype(np.float64),
    "float32": lambda: WHOLE.astype(np.float32),
    "int64": lambda: WHOLE.astype(np.int64),
    "uint8": lambda: WHOLE.astype(np.uint8),
    "float16": lambda: WHOLE.astype(np.float16),
    "big-endian": lambda: WHOLE.astype(">f8"),
    "by columns": lambda: np.asfortranarray(WHOLE.astype(np.float64)),
    "a view": lambda: np.repeat(WHOLE, 2, axis=1).astype(np.float64)[:, ::2],
    "csr": lambda: scipy.sparse.csr_array(WHOLE.astype(np.float64)),
    "csr, whole": lambda: scipy.sparse.csr_matrix(WHOLE),
    "frame": lambda: pd.DataFrame(WHOLE.astype(np.float64), columns=list("abcde")),
    "frame of two types": lambda: pd.DataFrame({"a": WHOLE[:, 0], "b": WHOLE[:, 1] / 2.0}),
}
LABELS: dict[str, Callable[[], Any]] = {
    "int": lambda: (np.arange(N) % 2).astype(np.int64),
    "float": lambda: (np.arange(N) % 2).astype(np.float64),
    "bool": lambda: np.arange(N) % 2 == 1,
    "text": lambda: np.array(["no", "yes"])[np.arange(N) % 2],
    "object": lambda: np.array(["no", "yes"], object)[np.arange(N) % 2],
    "list": lambda: (np.arange(N) % 2).tolist(),
    "series": lambda: pd.Series(np.arange(N) % 2),
    "categories": lambda: pd.Series(pd.Categorical.from_codes(np.arange(N) % 2, ["no", "yes"])),
    "several": lambda: np.stack([np.arange(N) % 2, np.arange(N) // 2 % 2], axis=1),
}
OPENINGS: dict[str, list[dict[str, Any]]] = {
    "plain": [{}],
    "maxabs": [{"scale": "maxabs"}],
    "standard": [{"scale": "standard"}],
    "unit-norm": [{"scale": "unit-norm"}],
    "log1p": [{"normalize": "log1p"}],
    "split": [{"split": 0.7}],
    "regression": [{"task": "regression"}],
    "one over another": [{"split": 0.7}, {"normalize": "log1p"}, {"scale": "maxabs"}],
}


def opened(arrays: tuple[Any, ...], openings: list[dict[str, Any]]) -> Any:
    store: Any = arrays
    for options in openings:
        store = open_store(store, **options)
    return store


def change(array: Any) -> None:
    """The first half of the rows becomes what the last row is, in place."""
    if isinstance(array, pd.DataFrame | pd.Series):
        array.iloc[: N // 2] = array.iloc[-1].to_numpy() if isinstance(array, pd.DataFrame) else array.iloc[-1]
    elif scipy.sparse.issparse(array):
        array.data[: D * (N // 2)] = np.resize(array.data[-D:], D * (N // 2))
    else:
        array[: N // 2] = [array[-1]] * (N // 2)


def content(store: Any) -> tuple[Any, ...]:
    found: list[Any] = [store.identity, None if store.classes is None else store.classes.tolist()]
    for ref in store.refs(7):
        block = store.read(ref)
        X = np.concatenate(block.X[:2]).tolist() if isinstance(block.X, CSR) else block.X.tolist()
        weight = None if block.sample_weight is None else block.sample_weight.tolist()
        found.append((X, block.y.tolist(), weight))
    return tuple(found)


def check(kind: str, label: str, opening: str, changed: tuple[int, ...]) -> None:
    arrays = (KINDS[kind](), LABELS[label](), np.linspace(1.0, 2.0, N))
    store = opened(arrays, OPENINGS[opening])
    before = content(store)
    assert open_store(store) is store
    assert content(open_store(pickle.loads(pickle.dumps(store)))) == before
    for which in changed:
        change(arrays[which])
    now = content(open_store(store))
    assert now == content(opened(arrays, OPENINGS[opening]))
    assert now != before


@pytest.mark.parametrize("changed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_any_kind(kind: str, changed: tuple[int, ...]) -> None:
    for opening in ("plain", "standard", "one over another"):
        check(kind, "int", opening, changed)


@pytest.mark.parametrize("changed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("label", LABELS)
def test_labels_of_any_kind(label: str, changed: tuple[int, ...]) -> None:
    for opening in OPENINGS:
        if opening == "regression" and label in ("text", "object", "categories", "several", "bool"):
            continue
        check("float64", label, opening, changed)


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_an_array_that_is_gone_has_not_changed(gone: int, opening: str) -> None:
    arrays = [WHOLE.astype(np.int16), np.arange(N) % 2 == 1, np.linspace(1, 9, N).astype(np.float32)]
    store = opened(tuple(arrays), OPENINGS[opening])
    before, kept = content(store), arrays[gone].copy()
    del arrays[gone]
    assert content(open_store(store)) == before
    change(arrays[0])
    arrays.insert(gone, kept)
    assert content(open_store(store)) == content(opened(tuple(arrays), OPENINGS[opening])) != before


MADE: dict[str, Callable[[np.ndarray], tuple[Any, ...]]] = {
    "columns of one array": lambda A: (A[:, 1:], A[:, 0]),
    "and of whole numbers": lambda A: (A[:, 1:], A[:, 0].astype(np.int64)),
    "labels made of them": lambda A: (A[:, 1:], np.where(A[:, 0] > 4, "no", "yes")),
    "a frame over an array": lambda A: (pd.DataFrame(A[:, 1:], copy=False), A[:, 0]),
    "rows of one array": lambda A: (A[::2, 1:], A[::2, 0]),
    "of Fortran's order": lambda A: (A.T[1:].T, A.T[0]),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_memory_that_a_view_or_a_container_made_for_one_call_is_of(name: str, dtype: Any) -> None:
    """Nobody holds what was given; the array that it is of is changed."""
    A = np.ascontiguousarray(WHOLE.astype(dtype))
    store = open_store(MADE[name](A))
    before = content(store)
    assert open_store(store) is store
    A[: N // 2] = A[-1]
    now = content(open_store(store))
    expected = list(MADE[name](A))
    if "whole" in name or "made" in name:  # labels are of an array that is gone
        expected[1] = MADE[name](WHOLE.astype(dtype))[1]
    assert now == content(open_store(tuple(expected))) != before


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("numbers", [np.int32, np.int64])
def test_the_arrays_of_a_matrix_made_for_one_call(dtype: Any, numbers: Any) -> None:
    values, labels = WHOLE.astype(dtype).reshape(-1), np.arange(N) % 2
    of = np.tile(np.arange(D), N).astype(numbers), (np.arange(N + 1) * D).astype(numbers)

    def rows() -> Any:
        return scipy.sparse.csr_array((values, *of), shape=(N, D))

    store = open_store((rows(), labels))
    before = content(store)
    assert open_store(store) is store
    values[: N * D // 2] = values[-1]
    assert content(open_store(store)) == content(open_store((rows(), labels))) != before


def test_weights_may_be_left_out_as_none() -> None:
    X, y = KINDS["float64"](), LABELS["int"]()
    store = open_store((X, y, None))
    assert open_store(store) is store
    change(y)
    assert content(open_store(store)) == content(open_store((X, y)))


def test_what_cannot_be_used_any_more_is_refused() -> None:
    X, y = KINDS["float64"](), LABELS["int"]()
    store = open_store((X, y), scale="maxabs")
    X[3, 2] = np.nan
    with pytest.raises(DataError, match=r"(?i)nan"):
        open_store(store)


def test_what_anndata_has_is_no_array() -> None:
    class Backed:
        def to_memory(self) -> None: ...

    with pytest.raises(UsageError, match="X is a Backed, not an array"):
        open_store((Backed(), LABELS["int"]()))


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (None, "y: row 2 has no label"),
        (float("nan"), "y: row 2 has no label"),
        (pd.NA, "y: row 2 has no label"),
        (pd.NaT, "y: row 2 has no label"),
        (1, "y: labels of type object must be strings: that of row 2 is '1', of type int"),
        (b"a", "y: labels of type object must be strings: that of row 2 is \"b'a'\", of type bytes"),
        ("a\0", "y: the text 'a\\x00' ends with the character NUL"),
    ],
)
@pytest.mark.parametrize(
    "make",
    [np.array, pd.Series, pd.Categorical, np.ndarray.tolist, lambda y: tuple(y.tolist()), lambda y: deque(y.tolist())],
)
def test_labels_that_are_no_text_name_the_row_and_the_remedy(
    odd: Any, said: str, make: Callable[..., Any], tmp_path: Path
) -> None:
    """They were `labels of type object`, whatever was wrong with them; and of a list NumPy makes text, `nan` of NaN."""
    values = np.array(["a", "b", odd, "b"], dtype=object)
    of_categories = make is pd.Categorical and not isinstance(odd, str)
    y = pd.Categorical(["a", "b", None, "b"]) if of_categories else make(values)
    said = "y: row 2 has no label" if of_categories else said
    for use in (lambda: open_store((np.eye(4), y)), lambda: bigsvm.ingest((np.eye(4), y), tmp_path / "rows.zarr")):
        with pytest.raises(DataError) as refused:
            use()
        assert str(refused.value).startswith(said)
        assert refused.value.hint


@pytest.mark.parametrize("make", [list, np.array])
def test_text_that_is_no_unicode_is_told(make: Callable[..., Any]) -> None:
    """The digest of the labels ended with UnicodeEncodeError."""
    y = make(["a", "\ud800"] * (N // 2))
    with pytest.raises(DataError, match=r"label '\\ud800' is not valid Unicode"):
        bigsvm.fit(WHOLE, np.array(y, object))
