"""Damaged Arrow files, and places of a .npz where zipfile raises other exceptions: refused, with the name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
import scipy.sparse as sp

from bigsvm.errors import DataError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.testing.forked import Forked

pytestmark = pytest.mark.usefixtures("own_cache")


def arrow_file(path: Path) -> bytes:
    lists = pa.array([[0, 2]] * 4, pa.list_(pa.int32())), pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float32()))
    labels = pa.array(["yes", "no", "yes", "no"]).dictionary_encode()
    table = pa.table({"label": labels, "indices": lists[0], "values": lists[1]})
    pyarrow.feather.write_feather(table, path, compression="uncompressed")
    return path.read_bytes()


def test_places_that_leave_an_arrow_file_do_not_end_the_process(tmp_path: Path) -> None:
    """Those of the texts yes and no, and what tells where they are: pyarrow would follow them to count bytes."""
    path = tmp_path / "a.arrow"
    content = arrow_file(path)
    texts = content.index(np.array([0, 3, 5], np.int32).tobytes())

    def read_all() -> None:
        for place in range(texts - 16, texts + 12):
            path.write_bytes(content[:place] + bytes([content[place] ^ 0x80]) + content[place + 1 :])
            try:
                store = open_store(str(path))
                store.read(store.refs(4)[0])
            except DataError as error:
                assert str(path) in str(error)  # noqa: PT017  the others are read in vain

    errors = tmp_path / "errors"
    ended = Forked(read_all, errors).wait()
    assert ended == 0, errors.read_text()


def test_names_in_an_arrow_file_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(arrow_file(path).replace(b"indices", b"\xe9ndices"))
    with pytest.raises(DataError, match=r"a\.arrow: not an Arrow IPC file, or damaged: .*utf-8"):
        open_store(str(path))


def sparse_npz(path: Path) -> bytes:
    X = sp.csr_matrix(np.eye(3, dtype=np.float32))
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    np.savez(path, format=b"csr", y=np.array([1, -1, 1]), **parts)
    return path.read_bytes()


def test_an_archive_that_lost_its_beginning_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(sparse_npz(path)[8:])
    with pytest.raises(DataError, match=r"a\.npz\[format\]: not a valid array: it begins outside the file"):
        ingest(path, tmp_path / "a.zarr")


def test_a_member_that_says_it_is_encrypted_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    content = bytearray(sparse_npz(path))
    directory = content.index(b"PK\1\2", content.rindex(b"indptr.npy") - 46)
    content[directory + 8] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz\[indptr\]: not a valid array: .*encrypted"):
        ingest(path, tmp_path / "a.zarr")


@pytest.mark.parametrize("name", ["format", "shape"])
def test_a_small_array_of_an_archive_is_compared_with_its_checksum(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    content = bytearray(sparse_npz(path))
    with zipfile.ZipFile(path) as archive:
        begin = archive.getinfo(f"{name}.npy").header_offset
    begin = content.index(b"\x93NUMPY", begin)
    content[begin + 10 + int.from_bytes(content[begin + 8 : begin + 10], "little")] ^= (
        1  # the first one after the header
    )
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.npz\[{name}\]: not a valid array: Bad CRC-32"):
        ingest(path, tmp_path / "a.zarr")


@pytest.mark.parametrize("shape", [3, [3, 3, 3], [1.5, 2.5]])
def test_a_shape_is_two_whole_numbers(shape: object, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    sparse_npz(path)
    held = dict(np.load(path))
    np.savez(path, **{**held, "shape": np.array(shape)})
    with pytest.raises(DataError, match=r"a\.npz: shape is .*, not two whole numbers"):
        ingest(path, tmp_path / "a.zarr")
