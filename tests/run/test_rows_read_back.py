"""What `dump` writes is read back with the same names and labels, however odd; or it is refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bigsvm
from bigsvm.errors import DataError
from bigsvm.run.apply.row_files import write_rows

NAMES = [" a ", "b,c", 'd"e', '"', "", "é\u3000x", "\u3000", "'q'", "tab\tx", "line\ny", "#h", "0", "weight2"]
LABELS = {
    "int64": np.array([-(2**63), 2**63 - 1]),
    "uint64": np.array([5, 2**63 - 1], np.uint64),
    "large": np.array([2**63 + 5, 2**64 - 1], np.uint64),
    "float": np.array([-0.0, 1e300]),
    "spaces": np.array([" lead", "a b"]),
    "marks": np.array(['q"z', "x,y"]),
    "numbers": np.array(["01", "1"]),
    "nothing": np.array(["None", "nan"]),
}
REFUSED = {"csv": ("large", "numbers", "nothing"), "svm": ("spaces", "marks", "numbers", "nothing")}
FORMATS = {"csv": "csv", "parquet": "parquet", "zarr": "zarr", "svm": "svmlight"}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("kind", LABELS)
def test_names_and_labels_come_back(kind: str, suffix: str, tmp_path: Path) -> None:
    """CSV lost the blanks around names, and had labels from 2^63 on that nothing could read."""
    labels, X = LABELS[kind], np.random.default_rng(0).standard_normal((20, len(NAMES)))
    y = labels[np.arange(20) % 2]
    source, out = tmp_path / "rows.parquet", tmp_path / f"out.{suffix}"
    pd.DataFrame(X, columns=NAMES).assign(label=y).to_parquet(source)
    rows = bigsvm.open_store(source)
    if kind in REFUSED.get(suffix, ()):
        with pytest.raises(DataError, match="labels"):
            write_rows(rows, out, FORMATS[suffix])
        assert not out.exists()
        return
    write_rows(rows, out, FORMATS[suffix])
    if suffix == "svm":  # it has no names
        bigsvm.ingest(out, tmp_path / "out.zarr")
        out = tmp_path / "out.zarr"
    found = bigsvm.open_store(out)
    (ref,) = found.refs(20)
    block = found.read(ref)
    assert found.classes is not None
    assert rows.classes is not None
    assert found.classes.dtype.kind == rows.classes.dtype.kind or suffix == "svm"
    assert found.classes[block.y].tolist() == y.tolist()
    if suffix != "svm":
        assert list(found.feature_names or ()) == list(rows.feature_names or ()) == NAMES
        np.testing.assert_array_equal(block.X, X)
