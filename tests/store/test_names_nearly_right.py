"""A column name with a slip of the pen is answered with the name that was meant, in every format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bigsvm
from bigsvm.errors import BigSVMError
from bigsvm.store.formats.opener import open_store
from tests.store.formats import anndata


def _written(kind: str, folder: Path) -> str:
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0], "income": [0.5, 0.1, 0.7, 0.3], "member": [0, 1, 0, 1]})
    path = folder / f"rows.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    elif kind == "feather":
        frame.to_feather(path)
    else:
        anndata(path, {"X": frame[["age", "income"]].to_numpy(), "obs/member": frame["member"].to_numpy(np.int64)})
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "h5ad", "zarr"])
@pytest.mark.parametrize("option", ["label", "weight"])
def test_the_name_that_was_meant_is_named(kind: str, option: str, tmp_path: Path) -> None:
    columns = {"label": "member", option: "membr"}
    with pytest.raises(BigSVMError, match=r"did you mean 'member'\? columns there: .*member"):
        bigsvm.fit(_written(kind, tmp_path), **columns)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
@pytest.mark.parametrize("option", ["label", "weight"])
def test_of_many_columns_the_rest_is_counted_and_the_option_is_named(kind: str, option: str, tmp_path: Path) -> None:
    """A table whose labels are not called label is the first that a newcomer has."""
    frame = pd.DataFrame(np.ones((2, 30)), columns=[f"x{j}" for j in range(30)]).assign(clicked=[0, 1])
    path = tmp_path / f"rows.{kind}"
    getattr(frame, f"to_{kind}")(path, **({"index": False} if kind == "csv" else {}))
    with pytest.raises(BigSVMError) as caught:
        open_store(str(path), **{"label": "clicked", option: "nowhere"})
    assert f"x19 and 11 more; --{option} names the {option}s" in caught.value.hint
