"""Numbers that stand for others, by the attributes of their array, are refused wherever they are read."""

from __future__ import annotations

import base64
import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bigsvm.errors import DataError
from bigsvm.store.formats.opener import open_store

_NAN = base64.b64encode(struct.pack("<d", float("nan"))).decode()
_MARK = base64.b64encode(struct.pack("<d", 1e20)).decode()
_PLACES = ("X", "obs/label", "obs/weight", "layers/counts")
_PACKED: list[dict[str, Any]] = [
    {"scale_factor": 0.25}, {"add_offset": 1.0}, {"scale_factor": 1.0, "add_offset": -2}, {"_FillValue": -999},
    {"missing_value": -1}, {"_FillValue": 1e20}, {"_FillValue": _MARK}, {"scale_factor": 0.25, "_FillValue": _NAN},
]  # fmt: skip
_PLAIN: list[dict[str, Any]] = [
    {}, {"scale_factor": 1.0, "add_offset": 0}, {"_FillValue": _NAN}, {"_FillValue": "NaN"}, {"units": "m"},
    {"_ARRAY_DIMENSIONS": ["row"]},
]  # fmt: skip
_ARRAYS = {
    "X": np.arange(8.0).reshape(4, 2), "obs/label": np.array([0, 1, 0, 1]), "obs/weight": np.ones(4),
    "layers/counts": np.arange(8).reshape(4, 2),
}  # fmt: skip


def _zarr(path: Path, version: int, at: str, attributes: dict[str, Any], fill: Any = None) -> str:
    group = zarr.open_group(path, mode="w", zarr_format=version)
    for place, values in _ARRAYS.items():
        array = group.create_array(
            place, shape=values.shape, dtype=values.dtype, fill_value=fill if version == 2 and place == at else 0
        )
        array[:] = values
        array.update_attributes(attributes if place == at else {})
    return str(path)


def _h5ad(path: Path, at: str, attributes: dict[str, Any]) -> str:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for place, values in _ARRAYS.items():
            file[place] = values
            file[place].attrs.update(attributes if place == at else {})
    return str(path)


def _open(path: str, at: str) -> Any:
    return open_store(path, matrix=at if at.startswith("layers/") else None, empty_chunks="zeros")


@pytest.mark.parametrize(("at", "attributes"), [*itertools.product(_PLACES, _PACKED)])
def test_what_is_packed_is_refused_by_its_attribute(tmp_path: Path, at: str, attributes: dict[str, Any]) -> None:
    for path in (
        _zarr(tmp_path / "two.zarr", 2, at, attributes),
        _zarr(tmp_path / "three.zarr", 3, at, attributes),
        _h5ad(tmp_path / "rows.h5ad", at, attributes),
    ):
        with pytest.raises(DataError, match=r"packed numbers|stand for missing") as refused:
            _open(path, at)
        said = str(refused.value)
        assert any(f"{name}" in said for name in attributes)
        assert "xarray" in str(refused.value.hint)


@pytest.mark.parametrize(("at", "attributes"), [*itertools.product(_PLACES, _PLAIN)])
def test_plain_numbers_are_read(tmp_path: Path, at: str, attributes: dict[str, Any]) -> None:
    for path in (
        _zarr(tmp_path / "two.zarr", 2, at, attributes),
        _zarr(tmp_path / "three.zarr", 3, at, attributes),
        _h5ad(tmp_path / "rows.h5ad", at, {**attributes, "rest": np.array([1, 2])}),
    ):
        rows = _open(path, at)
        block = rows.read(rows.refs(4)[0])
        np.testing.assert_array_equal(block.X, _ARRAYS["layers/counts" if at.startswith("layers/") else "X"])
        np.testing.assert_array_equal(block.y, [0, 1, 0, 1])


@pytest.mark.parametrize(("fill", "refused"), [(-999, True), (0, True), (float("nan"), False), (None, False)])
def test_of_zarr_2_the_fill_value_is_the_mark_where_dimensions_have_names(
    tmp_path: Path, fill: Any, refused: bool
) -> None:
    dimensions = {"_ARRAY_DIMENSIONS": ["row", "feature"]}
    path = _zarr(tmp_path / "rows.zarr", 2, "X", dimensions, fill)
    if refused:
        with pytest.raises(DataError, match="fill_value is"):
            _open(path, "X")
    else:
        assert _open(path, "X").n_samples == 4
    assert _open(_zarr(tmp_path / "zarr's own.zarr", 2, "X", {}, fill), "X").n_samples == 4


@pytest.mark.parametrize("version", [2, 3])
def test_what_xarray_writes(tmp_path: Path, version: int) -> None:
    xarray = pytest.importorskip("xarray")
    X, y = np.array([[1.5, 2.0], [0.25, 4.0], [3.0, 1.0], [2.0, 2.5]]), np.array([0, 1, 0, 1])
    for name, how in {
        "packed": {"dtype": "i2", "scale_factor": 0.25, "_FillValue": -999},
        "plain": {},
        "marked": {"_FillValue": -1.0},
    }.items():
        path = tmp_path / f"{name}.zarr"
        rows = xarray.Dataset({"X": (("row", "feature"), X)})
        rows.to_zarr(path, encoding={"X": how}, zarr_format=version, consolidated=False)
        xarray.Dataset({"label": (("row",), y)}).to_zarr(
            path, group="obs", mode="a", zarr_format=version, consolidated=False
        )
        if name == "plain":
            found = _open(str(path), "X")
            np.testing.assert_array_equal(found.read(found.refs(4)[0]).X, X)
        else:
            with pytest.raises(DataError):
                _open(str(path), "X")
