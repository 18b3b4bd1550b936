"""Frames whose columns are numbers of several types, where NumPy alone would make Python objects of them."""

from __future__ import annotations

import itertools
import re
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import scipy.sparse
from sklearn.base import clone

import bigsvm
import bigsvm.predictor
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, UsageError
from bigsvm.run.fit.plan import make_plan
from bigsvm.sklearn import SVC, SVR, LinearSVC, LinearSVR, NuSVC, OneClassSVM
from bigsvm.store.frames.values import plain_rows
from bigsvm.units import MIB

NAMES = list("abcd")
WHOLE = np.tile(np.array([[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 1], [0, 0, 1, 1]], np.uint8), (5, 1))
Y = WHOLE[:, 0] + 0
EVERY: list[str] = [
    "float64", "Float64", "double[pyarrow]", "float32", "Float32", "float[pyarrow]", "int64", "Int64", "int64[pyarrow]",
    "uint8", "UInt8", "uint8[pyarrow]", "bool", "boolean", "bool[pyarrow]", "object", "decimal", "category",
    "decimal128(9, 0)[pyarrow]", "sparse", "np.float32", "np.int64", "np.bool_",
]  # fmt: skip


def cast(column: pd.Series, kind: str) -> pd.Series:
    if kind.startswith("np."):  # as a row of a mixed frame, turned into a column, has them
        return pd.Series([getattr(np, kind[3:])(value) for value in column], dtype=object)
    if kind == "sparse":
        return column.astype(pd.SparseDtype("float64", 0.0))
    if kind.startswith("decimal128"):
        return pd.Series([Decimal(int(value)) for value in column], dtype=pd.ArrowDtype(pa.decimal128(9, 0)))
    if kind == "decimal":
        return pd.Series([Decimal(int(value)) for value in column], dtype=object)
    if kind == "object":
        return pd.Series([int(value) for value in column], dtype=object)
    return column.astype(kind)


def frame(kinds: list[str]) -> pd.DataFrame:
    return pd.DataFrame({name: cast(pd.Series(WHOLE[:, place]), kinds[place]) for place, name in enumerate(NAMES)})


@pytest.mark.parametrize("beside", [None, "float64", "bool"])
@pytest.mark.parametrize("kind", EVERY)
def test_every_type_of_numbers_has_the_numbers_of_an_array(kind: str, beside: str | None) -> None:
    """All columns of the type, or one of it beside columns of another."""
    given = frame([kind] * 4 if beside is None else [kind, beside, beside, beside])
    found = plain_rows(given, "X")
    assert found.dtype.kind in "biuf"
    np.testing.assert_array_equal(found, WHOLE)


@pytest.mark.parametrize("kind", ["Float32", "boolean", "double[pyarrow]", "decimal"])
def test_a_fit_a_prediction_and_a_store_take_such_frames(kind: str, tmp_path: Any) -> None:
    given, plain = frame([kind, "float64", "bool", "float64"]), WHOLE.astype(np.float64)
    model = bigsvm.fit(given, Y).model
    np.testing.assert_array_equal(model.coef, bigsvm.fit(plain, Y).model.coef)
    np.testing.assert_array_equal(model.decision_function(given), model.decision_function(plain))
    bigsvm.ingest(given, tmp_path / "rows.zarr", y=Y)
    np.testing.assert_array_equal(bigsvm.fit(tmp_path / "rows.zarr").model.coef, model.coef)


@pytest.mark.parametrize("memory", ["16MiB", "1GiB"])
@pytest.mark.parametrize("kind", EVERY)
def test_a_frame_has_the_plan_of_the_array_that_is_made_of_it(kind: str, memory: str) -> None:
    """The array is made before the fit begins, and a budget counts what comes after that (docs/data.md)."""
    given, config = frame([kind, "float64", "bool", "float64"]), FitConfig.of(memory=memory)
    stores = [bigsvm.open_store((X, Y)) for X in (given, plain_rows(given, "X"))]
    plans = [make_plan(store, config).document() for store in stores]
    assert plans[0] == plans[1]


@pytest.mark.usefixtures("freed_is_returned")
def test_a_fit_of_a_frame_larger_than_its_budget_keeps_the_budget(tmp_path: Any) -> None:
    """Also where the array that is made of it is larger: it is held already when the budget begins."""
    X = np.random.default_rng(0).standard_normal((200_000, 8))
    given = pd.DataFrame(X).astype("Float64").assign(last=X[:, 0] > 0.3)
    result = bigsvm.fit(given, (X[:, 0] > 0) * 1, memory="12MiB", max_passes=1, threads=1, scratch=str(tmp_path))
    assert plain_rows(given, "X").nbytes > result.memory["budget_bytes"] == 12 * MIB
    assert not result.model.about["plan"]["resident"]
    assert result.memory["peak_anon_bytes"] - result.memory["base_bytes"] <= 12 * MIB


def test_what_is_not_filled_yet_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nobody has written may hold what no conversion takes: now and then NumPy warned of it."""
    empty = np.empty

    def dirty(shape: Any, dtype: Any = float, **options: Any) -> Any:
        out = empty(shape, dtype, **options)
        if out.dtype == np.float32:
            out.view(np.uint32)[...] = 0x7FA00000  # a NaN that signals
        return out

    frame = pd.DataFrame({"a": np.ones(3, np.float32), "b": np.ones(3, np.int32), "c": np.ones(3, bool)})
    monkeypatch.setattr(np, "empty", dirty)
    np.testing.assert_array_equal(plain_rows(frame, "X"), np.ones((3, 3)))


def test_types_of_half_the_size_stay() -> None:
    assert plain_rows(frame(["Float32"] * 4), "X").dtype == np.float32
    assert plain_rows(frame(["UInt8"] * 4), "X").dtype == np.uint8


@pytest.mark.parametrize("kind", ["Float64", "Int64", "boolean", "float[pyarrow]", "int64[pyarrow]"])
def test_a_missing_value_is_refused_with_its_row(kind: str) -> None:
    given = frame([kind, "float64", "bool", "float64"])
    given.loc[3, "a"] = pd.NA
    with pytest.raises(DataError, match="row 3 holds nan in column 0"):
        bigsvm.fit(given, Y)


@pytest.mark.parametrize("missing", [None, pd.NA, float("nan"), Decimal("NaN"), Decimal("sNaN")])
def test_a_missing_value_among_objects_is_refused_with_its_row(missing: Any) -> None:
    given = frame(["object", "float64", "bool", "float64"])
    given.at[3, "a"] = missing
    with pytest.raises(DataError, match="row 3 holds nan in column 0"):
        bigsvm.fit(given, Y)


@pytest.mark.parametrize("value", ["1.0", "x", 1j, (1,), b"1"])
def test_an_object_that_is_no_number_is_named(value: Any) -> None:
    given = frame(["object", "float64", "bool", "float64"])
    given.at[3, "a"] = value
    with pytest.raises(DataError, match=r"column 'a': row 3 holds .* which is not a number"):
        bigsvm.fit(given, Y)


def test_one_row_of_a_mixed_frame_is_scored() -> None:
    mixed = frame(["Float32", "bool", "float64", "int64"]).assign(id=list("abcde") * 4)
    model = bigsvm.fit(mixed[NAMES], Y).model
    row = mixed.iloc[0][NAMES].to_frame().T
    np.testing.assert_array_equal(model.decision_function(row), model.decision_function(WHOLE[:1]))


def test_a_mixed_frame_of_dask_is_scored() -> None:
    dd = pytest.importorskip("dask.dataframe")
    mixed = frame(["float32", "bool", "float64", "int64"])
    model = bigsvm.fit(mixed, Y).model
    scores = model.decision_function(dd.from_pandas(mixed, npartitions=2))
    np.testing.assert_array_equal(scores, model.decision_function(WHOLE))


def test_a_mixed_frame_is_not_made_objects_of_first() -> None:
    n = 20_000
    mixed = pd.DataFrame(np.ones((n, 20))).assign(last=np.zeros(n, bool))
    tracemalloc.start()
    try:
        found = plain_rows(mixed, "X")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * found.nbytes


def test_labels_in_a_frame_are_told_of_as_labels() -> None:
    with pytest.raises(UsageError, match=r"labels of shape \(20, 1\) for 20 rows \(one label a row: pass numpy.ravel"):
        bigsvm.fit(WHOLE.astype(float), pd.DataFrame({"y": list("xy") * 10}))


@pytest.mark.parametrize(
    "values", [list("xy") * 10, pd.date_range("2020", periods=20), pd.Categorical(list("xy") * 10)]
)
def test_a_column_without_numbers_is_named(values: Any) -> None:
    said = r"values of type \S+ are not numbers|row 0 holds 'x' of type str, which is not a number"  # pandas 3, and 2
    with pytest.raises(DataError, match=rf"X, column 'e': ({said})"):
        bigsvm.fit(frame(["float64", "bool", "float64", "float64"]).assign(e=values), Y)


@pytest.mark.parametrize("values", [list("xyzz") * 5, pd.Categorical(list("xyzz") * 5)], ids=["text", "categories"])
def test_the_file_that_a_message_names_takes_text_and_categories(values: Any, tmp_path: Path) -> None:
    """A fit and a prediction each name a kind of file, and both are possible from a file of that kind."""
    given = frame(["float64"] * 4).assign(e=values)
    with pytest.raises(DataError) as of_fit:
        bigsvm.fit(given, Y)
    (kind,) = re.findall(r"write the frame to a (\w+) file", of_fit.value.hint)
    path = tmp_path / f"rows.{kind.lower()}"
    getattr(given.assign(label=Y), f"to_{kind.lower()}")(path)
    model = bigsvm.fit(path).model
    assert {"e=x", "e=y", "e=z"} <= set(model.about["rows"]["features"])
    with pytest.raises(DataError) as of_prediction:
        model.predict(given)
    (method,) = re.findall(r"to_\w+", of_prediction.value.hint)
    path = tmp_path / f"new.{method.removeprefix('to_')}"
    getattr(given, method)(path)
    rows = bigsvm.open_store(path, labelled=False, like=model.about["rows"])
    assert rows.n_features == model.n_features


@pytest.mark.parametrize("kind", ["Int64", "int64[pyarrow]", "object", "decimal"])
def test_whole_numbers_that_float64_rounds_are_refused(kind: str) -> None:
    given = frame(["float64", "bool", "float64", "float64"])
    large = Decimal(2**60 + 1) if kind == "decimal" else 2**60 + 1
    given["a"] = pd.Series([large] * len(given), dtype=kind.replace("decimal", "object"))
    with pytest.raises(DataError, match=r"X, column 'a': row 0 holds 1152921504606846977, beyond 2\^53"):
        bigsvm.fit(given, Y)


class Query:
    """As `polars.LazyFrame`: it has names and types of columns, and no rows."""

    columns, dtypes = NAMES, [float] * 4

    def collect_schema(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("estimator", [None, LinearSVC(), SVC(), OneClassSVM()], ids=str)
def test_a_query_that_was_not_read_is_refused(estimator: Any) -> None:
    with pytest.raises((DataError, ValueError), match=r"^X is a Query, whose rows are not read yet \(give X.collect"):
        bigsvm.fit(Query(), Y) if estimator is None else clone(estimator).fit(Query(), Y)


KINDS = [(kind, False) for kind in ("complex128", "datetime64[s]", "timedelta64[s]", "U", "S")]


@pytest.mark.parametrize(("kind", "sparse"), [*KINDS, ("complex128", True)])  # SciPy has no matrices of the others
def test_a_model_scores_numbers_only(kind: str, sparse: bool) -> None:
    """Imaginary parts were dropped with a warning, and text was read as numbers."""
    model = bigsvm.fit(WHOLE.astype(float), Y).model
    X = WHOLE.astype(kind)
    with pytest.raises(DataError, match="cannot be used"):
        model.decision_function(scipy.sparse.csr_matrix(X) if sparse else X)


def of_objects(what: Any) -> np.ndarray:
    """WHOLE as Python objects, with another one in row 3 and column 1."""
    X = np.array([[float(value) for value in row] for row in WHOLE], dtype=object)
    X[3, 1] = what
    return X


WAYS: dict[str, Any] = {
    "fit": lambda X, folder: bigsvm.fit(X, Y),
    "ingest": lambda X, folder: bigsvm.ingest((X, Y), folder / "rows.zarr"),
    "predict": lambda X, folder: bigsvm.fit(WHOLE.astype(float), Y).model.predict(X),
    "predictor": lambda X, folder: predictor_of(folder).predict(X),
}


def predictor_of(folder: Path) -> Any:
    bigsvm.fit(WHOLE.astype(float), Y).save_model(folder / "model")
    return bigsvm.predictor.load(folder / "model")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "what", ["2", "x", b"2", 1j, {}, np.datetime64("2020-01-01")], ids=lambda value: type(value).__name__
)
def test_an_object_that_is_no_number_is_refused_by_all(way: str, what: Any, tmp_path: Path) -> None:
    """Models read the text 2 as a number, which a fit refused, and said of x what Python says."""
    with pytest.raises(DataError, match=r"^X, column 1: row 3 holds .* which is not a number") as caught:
        WAYS[way](of_objects(what), tmp_path)
    assert "make numbers of it" in caught.value.hint


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", [10**400, -(10**5000), Fraction(10**400, 3)], ids=["400", "5000 digits", "fraction"])
def test_an_object_too_large_for_float64_is_refused_by_all(way: str, what: Any, tmp_path: Path) -> None:
    """It ended in an OverflowError."""
    with pytest.raises(DataError, match=r"^X, column 1: row 3 holds a number beyond the range of float64"):
        WAYS[way](of_objects(what), tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_objects_that_are_numbers_are_numbers(way: str, tmp_path: Path) -> None:
    X = WHOLE.astype(float)
    X[3, 1] = 2.0
    (tmp_path / "plain").mkdir()
    plain = WAYS[way](X, tmp_path / "plain")
    for k, what in enumerate((2, 2.0, np.float32(2), Decimal(2), Fraction(2))):
        (tmp_path / str(k)).mkdir()
        found = WAYS[way](of_objects(what), tmp_path / str(k))
        if way == "fit":
            assert found.model.coef.tolist() == plain.model.coef.tolist()
        elif way == "ingest":
            assert found["content_fingerprint"] == plain["content_fingerprint"]
        else:
            assert found.tolist() == plain.tolist()
    with pytest.raises(DataError, match="row 3 "):
        WAYS[way](of_objects(None), tmp_path)


ESTIMATORS = [LinearSVC(), LinearSVR(), SVC(), SVR(), NuSVC(), OneClassSVM()]
TAKEN = [
    *itertools.product([None, *ESTIMATORS], ["csr_matrix", "csr_array"]),
    *itertools.product(ESTIMATORS, ["csc_matrix"]),
]


@pytest.mark.parametrize("harm", ["falls", "too long", "not from 0"])
@pytest.mark.parametrize(("estimator", "form"), TAKEN, ids=str)
def test_a_sparse_matrix_with_a_damaged_indptr_is_refused(estimator: Any, harm: str, form: str) -> None:
    """SciPy's loops trusted it: a RuntimeError, or the end of the process."""
    X = getattr(scipy.sparse, form)(WHOLE.astype(float))
    place, value = {"falls": (3, 100), "too long": (-1, 10**6), "not from 0": (0, 1)}[harm]
    X.indptr[place] = value
    with pytest.raises((DataError, ValueError), match="indptr"):
        bigsvm.fit(X, Y) if estimator is None else clone(estimator).fit(X, Y)


@pytest.mark.parametrize("index", [-1, 9])
def test_an_index_outside_of_a_model_is_named(index: int) -> None:
    model = bigsvm.fit(scipy.sparse.csr_matrix(WHOLE.astype(float)), Y).model
    X = scipy.sparse.csr_matrix(WHOLE.astype(float))
    X.indices[0] = index
    with pytest.raises(DataError, match=r"-1, which is negative|feature 9 is beyond the model's 4"):
        model.decision_function(X)


def in_container(given: pd.DataFrame, container: str) -> Any:
    """The columns of a frame as another library holds them."""
    if container == "pandas":
        return given
    if container == "polars":
        return pytest.importorskip("polars").from_pandas(given)
    table = pa.Table.from_pandas(given, preserve_index=False)
    if container == "batch":
        return table.to_batches()[0]
    return pa.concat_tables([table[:7], table[7:]]) if container == "chunks" else table


CONTAINERS = ["pandas", "polars", "table", "chunks", "batch"]
NUMBERS = pd.DataFrame(np.random.default_rng(5).standard_normal((20, 4)), columns=NAMES)
OTHERWISE = NUMBERS[["c", "a", "d", "b"]]


@pytest.mark.parametrize("scored", CONTAINERS)
@pytest.mark.parametrize("trained", CONTAINERS)
@pytest.mark.parametrize("stored", [False, True])
def test_columns_are_found_by_their_names(trained: str, scored: str, stored: bool, tmp_path: Path) -> None:
    """Columns of pyarrow, and those of any frame that was ingested, were found by their places."""
    source: Any = (in_container(NUMBERS, trained), Y)
    if stored:
        bigsvm.ingest(source, tmp_path / "rows.zarr")
        source = str(tmp_path / "rows.zarr")
        with pytest.raises(DataError, match="feature 0 is 'c', but in the store 'a'"):
            bigsvm.ingest((in_container(OTHERWISE, scored), Y), tmp_path / "rows.zarr", append=True)
    model = bigsvm.fit(source).model
    scores = model.decision_function(NUMBERS.to_numpy())
    np.testing.assert_array_equal(model.decision_function(in_container(OTHERWISE, scored)), scores)
    with pytest.raises(DataError, match="no column 'b', which the model was trained on"):
        model.decision_function(in_container(OTHERWISE.drop(columns="b"), scored))
    if scored in ("table", "batch"):
        twice = in_container(OTHERWISE, scored).rename_columns(["c", "a", "d", "c"])
        with pytest.raises(DataError, match="two columns are called 'c'"):
            model.decision_function(twice)


@pytest.mark.parametrize(
    "kind",
    ["float64", "float32", "float16", "int8", "uint64", "int64", "bool_", "decimal128", "null", "dictionary", "runs"],
)
@pytest.mark.parametrize("missing", [False, True])
def test_every_type_of_numbers_of_pyarrow_has_the_numbers_of_an_array(kind: str, missing: bool) -> None:
    values: list[Any] = WHOLE[:, 1].astype(bool).tolist() if kind == "bool_" else WHOLE[:, 1].tolist()
    values = [None, *values[1:]] if missing else values
    if kind == "null":
        column = pa.nulls(len(values))
    elif kind == "dictionary":
        column = pa.array(values, pa.int64()).dictionary_encode()
    elif kind == "runs":
        column = pc.run_end_encode(pa.array(values, pa.int64()))
    else:
        column = pa.array(
            [np.float16(value) for value in values] if kind == "float16" and not missing else values,
            pa.decimal128(9, 0) if kind == "decimal128" else getattr(pa, kind)(),
        )
    found = plain_rows(pa.table({"a": WHOLE[:, 0], "b": column}), "X")
    there = [np.nan if kind == "null" or value is None else float(value) for value in values]
    np.testing.assert_array_equal(found, np.column_stack([WHOLE[:, 0].astype(float), there]))


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["x"] * 20, pa.string()),
        ([0] * 20, pa.timestamp("s")),
        ([0] * 20, pa.date32()),
        ([0] * 20, pa.duration("s")),
        ([0] * 20, pa.time32("s")),
        ([[1.0]] * 20, pa.list_(pa.float64())),
        ([b"x"] * 20, pa.binary()),
        ([2**53 + 1] * 20, pa.int64()),
        ([None, *[2**53 + 1] * 19], pa.uint64()),
        ([2**53 + 1] * 20, pa.dictionary(pa.int8(), pa.int64())),
        ([None, *[2**53 + 1] * 19], pa.run_end_encoded(pa.int32(), pa.int64())),
        ([Decimal(2**53 + 1)] * 20, pa.decimal128(20)),
    ],
)
def test_a_column_of_pyarrow_that_is_no_number_or_would_be_rounded_is_named(values: Any, type_: pa.DataType) -> None:
    """NumPy rounded large whole numbers beside others, in silence, and ended with errors of its own at times."""
    given = pa.table({"a": WHOLE[:, 0].astype(float), "b": pa.array(values, type_)})
    with pytest.raises(DataError, match="X, column 'b'") as refused:
        bigsvm.fit(given, Y)
    assert refused.value.hint
    if not (pa.types.is_string(type_) or pa.types.is_nested(type_)):  # of which scikit-learn says more
        for one in (given, given.to_batches()[0]):
            with pytest.raises(DataError, match="X, column 'b'"):
                LinearSVC().fit(one, Y)


@pytest.mark.parametrize("scored", ["table", "batch"])
@pytest.mark.parametrize("trained", ["table", "batch"])
def test_an_estimator_knows_the_columns_of_pyarrow(trained: str, scored: str) -> None:
    """scikit-learn finds no names in a record batch, whose columns were scored by place."""
    estimator = LinearSVC().fit(in_container(NUMBERS, trained), Y)
    assert list(estimator.feature_names_in_) == NAMES
    scores = estimator.decision_function(in_container(NUMBERS, scored))
    np.testing.assert_array_equal(scores, estimator.decision_function(NUMBERS))
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.decision_function(in_container(OTHERWISE, scored))
