"""Compressed svmlight text: what is damaged or cut short is told."""

from __future__ import annotations

import lzma
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zstandard

from bigsvm.errors import DataError
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.compressed import ByteSource
from tests.store.svmlight.text import ONE, PACK, refused, rows_of, text_file

TEXT = b"".join(b"%d 1:%d 2:0.%d\n" % (k % 3, k, k) for k in range(20000))


@pytest.mark.parametrize("suffix", PACK)
class TestCompressed:
    def test_the_same_as_plain(self, tmp_path: Path, suffix: str) -> None:
        packed = text_file(tmp_path, PACK[suffix](TEXT), "a.svm" + suffix)
        plain = ingest(text_file(tmp_path, TEXT), tmp_path / "s")
        assert ingest(packed, tmp_path / "t")["content_fingerprint"] == plain["content_fingerprint"]

    def test_several_members(self, tmp_path: Path, suffix: str) -> None:
        half = TEXT.index(b"\n", len(TEXT) // 2) - 3  # in the middle of a line
        packed = text_file(tmp_path, PACK[suffix](TEXT[:half]) + PACK[suffix](TEXT[half:]), "a" + suffix)
        plain = ingest(text_file(tmp_path, TEXT), tmp_path / "s")
        assert ingest(packed, tmp_path / "t")["content_fingerprint"] == plain["content_fingerprint"]

    @pytest.mark.parametrize("keep", [1, 9, 0.3, 0.9, -1, -4, -9])
    def test_cut_short(self, tmp_path: Path, suffix: str, keep: float) -> None:
        packed = PACK[suffix](TEXT)
        cut = packed[: int(keep * len(packed)) if isinstance(keep, float) else keep]
        path = text_file(tmp_path, cut, "a" + suffix)
        refused(path, tmp_path / "s", 65, str(path))

    def test_second_member_cut_short(self, tmp_path: Path, suffix: str) -> None:
        path = text_file(tmp_path, PACK[suffix](TEXT) + PACK[suffix](TEXT)[:-20], "a" + suffix)
        refused(path, tmp_path / "s", 65, str(path))

    def test_damaged(self, tmp_path: Path, suffix: str) -> None:
        packed = bytearray(PACK[suffix](TEXT))
        packed[len(packed) // 2] ^= 0xFF
        refused(text_file(tmp_path, bytes(packed), "a" + suffix), tmp_path / "s", 65, "a" + suffix)

    def test_garbage_with_the_name(self, tmp_path: Path, suffix: str) -> None:
        refused(text_file(tmp_path, TEXT, "a" + suffix), tmp_path / "s", 65, "a" + suffix)

    def test_empty(self, tmp_path: Path, suffix: str) -> None:
        refused(text_file(tmp_path, b"", "a" + suffix), tmp_path / "s", 65, "a" + suffix)

    def test_line_number(self, tmp_path: Path, suffix: str) -> None:
        path = text_file(tmp_path, PACK[suffix](TEXT + b"1 1:nan\n"), "a" + suffix)
        refused(path, tmp_path / "s", 65, f"{path}:20001")


def unpacked(path: Path) -> bytes:
    buffer, found = np.empty(3000, np.uint8), []
    with ByteSource(str(path)) as source:
        while got := source.fill(buffer):
            found.append(buffer[:got].tobytes())
    return b"".join(found)


@pytest.mark.parametrize("suffix", PACK)
def test_harm_to_any_byte_of_any_member_is_told_or_changes_nothing(tmp_path: Path, suffix: str) -> None:
    """Python's readers of bz2 and xz end in silence where a later member makes no sense."""
    text = b"".join(b"%d 1:%d 2:0.%d\n" % (k % 3, k, k * k) for k in range(60))
    packed = PACK[suffix](text) * 3
    path = text_file(tmp_path, packed, "a" + suffix)
    assert unpacked(path) == 3 * text
    told = 0
    for place in range(len(packed)):
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :])
        try:
            assert unpacked(path) == 3 * text
        except DataError:
            told += 1
    assert told > 0.9 * len(packed)


@pytest.mark.parametrize("zeros", [0, 4, 8, 8 << 10, 3, (8 << 10) + 1])
def test_zeros_between_streams_of_xz(tmp_path: Path, zeros: int) -> None:
    path = text_file(tmp_path, (lzma.compress(b"1 1:0.5\n") + bytes(zeros)) * 2, "a.xz")
    if zeros % 4 == 0:
        assert unpacked(path) == b"1 1:0.5\n" * 2
    else:
        with pytest.raises(DataError, match="not a sound"):
            unpacked(path)


@pytest.mark.parametrize("suffix", [".bz2", ".xz"])
def test_what_repeats_is_unpacked_a_buffer_at_a_time(tmp_path: Path, suffix: str) -> None:
    path, buffer = text_file(tmp_path, PACK[suffix](bytes(30 << 20)), "a" + suffix), np.empty(1 << 16, np.uint8)
    tracemalloc.start()
    try:
        with ByteSource(str(path)) as source:
            assert sum(iter(lambda: source.fill(buffer), 0)) == 30 << 20
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_zstd_skippable_frame(tmp_path: Path) -> None:
    skip = struct.pack("<II", 0x184D2A50, 5) + b"hello"
    path = text_file(tmp_path, skip + zstandard.compress(b"1 1:0.5\n") + skip, "a.zst")
    ingest(path, tmp_path / "s")
    assert rows_of(tmp_path / "s") == ONE
