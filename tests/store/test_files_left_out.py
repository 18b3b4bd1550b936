"""Files in a folder of tables that are no part of the rows: users are told of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigsvm.errors import DataError, UsageError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import table_names

KINDS = {".parquet": "to_parquet", ".pq": "to_parquet", ".feather": "to_feather", ".csv": "to_csv"}


@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_files_of_another_kind_in_a_folder_are_not_left_out_in_silence(one: str, other: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"label": [0, 1] * 5, "a": np.arange(10.0)})
    for name, suffix in (("one", one), ("other", other)):
        getattr(frame, KINDS[suffix])(tmp_path / (name + suffix), **({"index": False} if suffix == ".csv" else {}))
    (tmp_path / "README.md").write_text("no rows")
    if {one, other} <= {".parquet", ".pq"}:
        assert open_store(str(tmp_path / "o*")).n_samples == 20
    store = open_store(tmp_path)
    alike = KINDS[one] == KINDS[other]
    assert store.n_samples == (20 if alike else 10)
    assert ["left out: 1 (" in warning for warning in store.warnings] == ([] if alike else [True])


@pytest.mark.parametrize("asked", [{}, {"label": "target"}, {"label": "u", "columns": ("x*",)}])
@pytest.mark.parametrize(
    ("taken", "other"), [(".parquet", ".csv"), (".parquet", ".feather"), (".pq", ".csv"), (".csv", ".feather")]
)
def test_a_column_that_is_missing_may_be_in_a_file_that_is_left_out(
    taken: str, other: str, asked: dict[str, Any], tmp_path: Path
) -> None:
    numbers = np.arange(10)
    frames = {taken: {"u": numbers, "v": numbers}, other: {"label": numbers % 2, "target": numbers % 2, "x1": numbers}}
    for suffix, columns in frames.items():
        options = {"index": False} if suffix == ".csv" else {}
        getattr(pd.DataFrame(columns), KINDS[suffix])(tmp_path / f"rows{suffix}", **options)
    with pytest.raises((DataError, UsageError), match="no column") as caught:
        open_store(tmp_path, **asked)
    named = f"{tmp_path}/*{other}"
    told = f"; files of another kind are left out: 1 (rows{other}); to read these, name them: '{named}'"
    assert caught.value.hint.startswith("columns there: u, v")
    assert caught.value.hint.endswith(told)
    assert open_store(named, **{**asked, "label": "target"}).n_samples == 10


@pytest.mark.parametrize(
    ("one", "other"), [(one, other) for one in KINDS for other in KINDS if KINDS[one] != KINDS[other]]
)
@pytest.mark.parametrize("pattern", ["*", "r*", "r*.[a-z]*", "*/*"])
def test_a_glob_of_several_kinds_is_refused(one: str, other: str, pattern: str, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    frame = pd.DataFrame({"label": [0, 1] * 5, "a": np.arange(10.0)})
    for suffix in (one, other):
        options = {"index": False} if suffix == ".csv" else {}
        getattr(frame, KINDS[suffix])(folder / f"rows{suffix}", **options)
    asked = f"{tmp_path if '/' in pattern else folder}/{pattern}"
    with pytest.raises(UsageError, match="names files of several kinds, such as ") as caught:
        open_store(asked)
    patterns = re.findall("'(.*?)'", caught.value.hint)
    assert sorted(Path(named).suffix for named in patterns) == sorted((one, other))
    for named in patterns:
        assert open_store(named).n_samples == 10


@pytest.mark.parametrize("suffix", KINDS)
def test_files_in_subfolders_are_not_left_out_in_silence(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def table(name: str) -> None:
        path = tmp_path / "t" / (name + suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = pd.DataFrame({"label": [0, 1] * 5, "a": np.arange(10.0)})
        getattr(frame, KINDS[suffix])(path, **({"index": False} if suffix == ".csv" else {}))

    for name in ("a", ".hidden/b", "_started/c", "deep/.hidden/d", "deep/_e", "store.zarr/f"):
        table(name)
    (tmp_path / "t" / "store.zarr" / "zarr.json").write_text("{}")
    (tmp_path / "t" / "notes").mkdir()
    (tmp_path / "t" / "notes" / "README.md").write_text("no rows")
    (tmp_path / "t" / "notes" / "circle").symlink_to(tmp_path / "t")
    store = open_store(tmp_path / "t")
    assert store.n_samples == 10
    assert not store.warnings
    for name in ("deep/down/g", "deep/h"):
        table(name)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t" / "deep" / "down" / f"g{suffix}").rename(tmp_path / "elsewhere" / f"g{suffix}")
    (tmp_path / "t" / "deep" / "down").rmdir()
    (tmp_path / "t" / "deep" / "down").symlink_to(tmp_path / "elsewhere")
    store = open_store(tmp_path / "t")
    assert store.n_samples == 10
    (warning,) = store.warnings
    pattern = f"{tmp_path}/t/*/*/*{suffix}"
    assert f"files in subfolders are left out: 2 (deep/down/g{suffix}, ...)" in warning
    assert warning.endswith(f"'{pattern}'")
    monkeypatch.setattr(table_names, "_LOOKED", 2)  # the folder itself, and one in it
    (warning,) = open_store(tmp_path / "t").warnings
    assert f"files in subfolders are left out: at least 1 (deep/h{suffix})" in warning
    (tmp_path / "t" / "notes" / "circle").unlink()
    assert open_store(pattern).n_samples == 10
