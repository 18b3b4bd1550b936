"""Text in Arrow's string views, as polars writes it: each use of a column is that of the same text as plain strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bigsvm.errors import BigSVMError
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.contracts import dense
from tests.products import pairs_of

LONG = "a text that is too long to lie within its view"
COLUMNS: dict[str, list[Any]] = {
    "without nulls": ["a", "b", LONG, "a", "b", LONG, "a", "b"],
    "with nulls": ["a", None, LONG, "a", "b", None, "a", "b"],
}
USES: dict[str, dict[str, Any]] = {
    "label": {"label": "t", "columns": "n*"},
    "label, rows without it left out": {"label": "t", "columns": "n*", "missing": "drop"},
    "label of chosen rows": {"label": "t", "columns": "n*", "rows": "n1 < 5 and n1 != 1"},
    "label that is a condition": {"label": "t", "columns": "n*", "rows": "t != b"},
    "several labels": {"labels": "t", "columns": "n*"},
    "feature": {"columns": "n*,t"},
    "feature of chosen rows": {"columns": "n*,t", "rows": "n1 != 1 and n1 != 5"},
    "hashed feature": {"columns": "n*,t", "hash_bits": 3},
    "condition": {"columns": "n*", "rows": "t == a"},
    "condition on several": {"columns": "n*", "rows": f"t in (b, '{LONG}')"},
    "condition on order": {"columns": "n*", "rows": "t >= b"},
    "condition on nulls": {"columns": "n*", "rows": "t is not null and not t == b"},
    "prediction": {"columns": "n*,t", "labelled": False},
}
TYPES = {"plain": pa.string_view(), "dictionary": pa.dictionary(pa.int32(), pa.string_view())}
STRINGS = {"plain": pa.large_string(), "dictionary": pa.dictionary(pa.int32(), pa.large_string())}


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.array(values, kind)
    coded = pa.array(values, pa.large_string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(kind.value_type))


def read(path: Path, values: pa.Array, options: dict[str, Any]) -> Any:
    """The rows that are read, or the message that refuses them."""
    numbers = list(range(len(values)))
    table = pa.table({"n1": numbers, "label": [0, 1] * (len(values) // 2), "t": values})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=3)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, 3)
    try:
        store = open_store(str(path), **options)
        blocks = [store.read(ref) for ref in store.refs(3)]
    except BigSVMError as error:
        return str(error).replace("string_view", "large_string")
    classes = None if store.classes is None else store.classes.tolist()
    return (
        store.feature_names,
        classes,
        [(dense(block.X, store.n_features).tolist(), block.y.tolist()) for block in blocks],
    )


@pairs_of(
    use=USES,
    kind__suffix=[("plain", ".arrow"), ("dictionary", ".arrow"), ("plain", ".parquet")],
    values=COLUMNS,
)
def test_each_use_of_a_column_of_views(tmp_path: Path, use: str, kind: str, values: str, suffix: str) -> None:
    views = column(COLUMNS[values], TYPES[kind])
    strings = column(COLUMNS[values], STRINGS[kind])
    path = tmp_path / f"rows{suffix}"
    wanted = read(path, strings, USES[use])
    assert read(path, views, USES[use]) == wanted
