"""Folds by a column belong to the rows that have a label, whichever rows lack one or a value in the column."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigsvm.errors import DataError
from bigsvm.run.tune.folds import make_folds
from bigsvm.store.formats.opener import open_store

N = 120
GROUP = np.arange(N) // 10  # neighbours, so that a shift by one row parts a group


def table(path: Path, no_label: list[int], no_group: list[int]) -> str:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.standard_normal(N), "b": random.standard_normal(N), "n": np.arange(N)})
    frame["label"] = np.where(frame.a > 0, "p", "q")
    frame["fold"] = [f"g{g:02}" for g in GROUP]
    frame.loc[no_label, "label"] = None
    frame.loc[no_group, "fold"] = None
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return str(path)


LACKS: list[list[int]] = [[], [5], [5, 64, 119], [0, 1, 2]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("rows", [None, "n >= 30", "n < 64 or n > 80"])
@pytest.mark.parametrize(("no_label", "no_group"), list(itertools.product(LACKS, LACKS)), ids=str)
def test_a_group_is_whole_where_rows_are_left_out(
    tmp_path: Path, suffix: str, rows: str | None, no_label: list[int], no_group: list[int]
) -> None:
    source = table(tmp_path / f"rows{suffix}", no_label, no_group)
    opened: dict[str, Any] = {"columns": ["a", "b"], "missing": "drop", "rows": rows}
    store = open_store(source, label="label", **opened)
    frame = pd.DataFrame({"n": np.arange(N)})
    kept = set(frame.query(rows).n if rows else frame.n) - set(no_label)
    assert store.n_samples == len(kept)
    wanted = np.array(sorted(kept))
    if missed := sorted(kept & set(no_group)):
        for options in ({"group": "fold", "fold": None}, {"group": None, "fold": "fold"}):
            with pytest.raises(DataError, match=f"row {missed[0]} has a label, but no value in fold"):
                make_folds(store, source, 3, seed=0, opened=opened, **options)
        return
    by_fold = make_folds(store, source, 3, None, "fold", 0, opened)
    names = np.array(by_fold.names)
    assert names[by_fold.values].tolist() == [f"g{g:02}" for g in GROUP[wanted]]
    assert by_fold.n_folds == len(names) == len(set(GROUP[wanted]))
    for array in (GROUP, GROUP[wanted]):  # of all rows, and of those that are trained on
        assert make_folds(store, source, 3, None, array, 0, opened).values.tolist() == by_fold.values.tolist()
    with pytest.raises(DataError, match=rf"\({N + 1},\) folds or groups for {len(wanted)} rows( of {N})?"):
        make_folds(store, source, 3, GROUP[:1].repeat(N + 1), None, 0, opened)
    by_group = make_folds(store, source, 3, "fold", None, 0, opened)
    for group in set(GROUP[wanted]):
        assert len(set(by_group.values[GROUP[wanted] == group])) == 1


@pytest.mark.parametrize("odd", [None, float("nan"), pd.NA, pd.NaT, 1], ids=str)
@pytest.mark.parametrize("make", [list, tuple, pd.Series, lambda values: np.array(values, object)])
@pytest.mark.parametrize("rows", [None, "n >= 30"])
def test_a_row_without_a_group_is_told(tmp_path: Path, odd: Any, make: Any, rows: str | None) -> None:
    """In a list NumPy makes text of it: the rows without a group were a group, `nan`."""
    source = table(tmp_path / "rows.parquet", [], [])
    opened: dict[str, Any] = {"columns": ["a", "b"], "rows": rows}
    store = open_store(source, label="label", **opened)
    given = [f"g{g}" for g in GROUP]
    given[40] = odd
    said = "several types: int, str" if isinstance(odd, int) else "row 40 has no fold or group"
    for options in ({"group": make(given), "fold": None}, {"group": None, "fold": make(given)}):
        with pytest.raises(DataError, match=said):
            make_folds(store, source, 3, seed=0, opened=opened, **options)
