"""What unpacking takes is known before, counted, and kept: the window of a .zst or .xz file is its writer's choice."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from bigsvm.config import FitConfig
from bigsvm.errors import BudgetExceeded, DataError, PlanRefused
from bigsvm.model.linear_model import LinearModel
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import predict
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.compressed import ByteSource
from bigsvm.store.text.unpacking import USUAL, unpacking_bytes
from bigsvm.units import KIB, MIB

TEXT = b"1 1:1 3:0.5\n-1 2:1\n" * 40
SKIPPED = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


def zst_of(content: bytes, window_log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(content) + packer.flush()


def zst(window_log: int) -> bytes:
    """A stream whose length is not known at its front, as a pipe has it."""
    return zst_of(TEXT, window_log)


def xz(window: int) -> bytes:
    return lzma.compress(TEXT, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": window}])


FILES: dict[str, tuple[Callable[[], bytes], int]] = {
    "small.zst": (lambda: zstandard.ZstdCompressor().compress(TEXT), len(TEXT)),
    "usual.zst": (lambda: zst(21), 2 * MIB),
    "after-skipped.zst": (lambda: SKIPPED * 3 + zst(24), 16 * MIB),
    "long.zst": (lambda: zst(27), 128 * MIB),
    "longer.zst": (lambda: zst(30), 1024 * MIB),
    "usual.xz": (lambda: lzma.compress(TEXT), 8 * MIB),
    "between.xz": (lambda: xz(12 * MIB), 12 * MIB),
    "large.xz": (lambda: xz(64 * MIB), 64 * MIB),
    "any.gz": (lambda: gzip.compress(TEXT), 32 * KIB),
    "any.bz2": (lambda: bz2.compress(TEXT), 3700 * 1000),
    "none.svm": (lambda: TEXT, 0),
}


def write(folder: Path, name: str, content: bytes | None = None) -> str:
    path = folder / name
    path.write_bytes(FILES[name][0]() if content is None else content)
    return str(path)


@pytest.mark.parametrize("name", FILES)
def test_the_window_is_known_and_the_text_is_read(tmp_path: Path, name: str) -> None:
    path, window = write(tmp_path, name), FILES[name][1]
    assert window <= unpacking_bytes(path) <= window + 512 * KIB
    others = [write(tmp_path, other) for other in ("none.svm", "any.gz")]
    assert unpacking_bytes([*others, path]) == max(unpacking_bytes(path), 64 * KIB)
    out = np.empty(2 * len(TEXT), np.uint8)
    with ByteSource(path) as source:
        assert bytes(out[: source.fill(out)]) == TEXT


@pytest.mark.parametrize("suffix", [".zst", ".xz"])
@pytest.mark.parametrize("content", [b"", b"(\xb5", SKIPPED, SKIPPED[:9], b"no such thing at all"])
def test_a_file_that_is_none_counts_nothing_and_is_refused_by_its_reader(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = write(tmp_path, f"x{suffix}", content)
    assert unpacking_bytes(path) == 0
    assert unpacking_bytes(str(tmp_path / f"absent{suffix}")) == 0
    if content != SKIPPED:  # whole frames without content are an empty text
        with ByteSource(path) as source, pytest.raises(DataError):
            source.fill(np.empty(100, np.uint8))


@pytest.mark.parametrize(
    ("first", "second", "reads"),
    [("usual", "small", True), ("small", "usual", True), ("small", "long", False), ("usual", "long", False),
     ("long", "usual", True), ("long", "long", True)],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".zst", ".xz"])
def test_a_later_stream_takes_no_more_than_was_counted(
    tmp_path: Path, first: str, second: str, suffix: str, reads: bool
) -> None:
    made = {".zst": {"small": zst(12), "usual": zst(23), "long": zst(27)},
            ".xz": {"small": xz(4096), "usual": xz(8 * MIB), "long": xz(64 * MIB)}}[suffix]  # fmt: skip
    path = write(tmp_path, f"two{suffix}", made[first] + made[second])
    out = np.empty(3 * len(TEXT), np.uint8)
    with ByteSource(path) as source:
        if reads:
            assert bytes(out[: source.fill(out)]) == 2 * TEXT
            return
        with pytest.raises(DataError, match="later part of the file takes more memory") as refused:
            source.fill(out)
    assert refused.value.hint == "unpack it first"


@pytest.mark.parametrize("name", ["long.zst", "large.xz"])
def test_a_window_beyond_the_memory_is_refused_and_the_memory_named_does(tmp_path: Path, name: str) -> None:
    path, window = write(tmp_path, name.replace(".", ".svm.", 1), FILES[name][0]()), FILES[name][1]
    assert window > 32 * MIB > USUAL
    with pytest.raises(PlanRefused, match="would do") as refused:
        ingest(path, tmp_path / "rows.zarr", memory="32MiB", chunk_bytes="1MiB")
    assert refused.value.hint is not None
    assert "unpack the text first" in refused.value.hint
    least = refused.value.min_memory_bytes
    assert least is not None
    assert least > window
    assert ingest(path, tmp_path / "rows.zarr", memory=least, chunk_bytes="1MiB")["n_samples"] == 80
    model = LinearModel(np.ones((1, 3)), np.zeros(1), np.array([-1, 1]))
    for use in (
        lambda config: predict(model, path, tmp_path / "labels.csv", "csv", config, overwrite=True),
        lambda config: evaluate(model, path, config),
    ):
        with pytest.raises(BudgetExceeded, match="unpacking the text") as exceeded:
            use(FitConfig.of(memory="32MiB", threads=1))
        least = exceeded.value.min_memory_bytes
        assert least is not None
        assert least > window
        assert use(FitConfig.of(memory=least, threads=1))["n_samples"] == 80


@pytest.mark.parametrize("name", ["usual.zst", "usual.xz", "any.gz"])
def test_nothing_is_taken_out_of_a_pipe(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    assert unpacking_bytes(str(path)) in (USUAL, 64 * KIB)
    writer = threading.Thread(target=lambda: path.write_bytes(FILES[name][0]()))
    writer.start()
    out = np.empty(2 * len(TEXT), np.uint8)
    with ByteSource(str(path)) as source:
        assert bytes(out[: source.fill(out)]) == TEXT
    writer.join()


@pytest.mark.parametrize("name", ["usual.zst", "long.zst", "any.gz", "none.svm"])
def test_a_table_says_what_its_readers_hold(tmp_path: Path, name: str) -> None:
    table = b"label,a\n" + b"1,0.5\n2,0.25\n" * 50
    packed = {"usual.zst": lambda: zst_of(table, 21), "long.zst": lambda: zst_of(table, 27),
              "any.gz": lambda: gzip.compress(table), "none.svm": lambda: table}[name]()  # fmt: skip
    path = tmp_path / f"rows.csv{name[name.index('.') :].replace('.svm', '')}"
    path.write_bytes(packed)
    plain = tmp_path / "plain.csv"
    plain.write_bytes(table)
    extra = open_store(str(path)).chunk_nbytes - open_store(str(plain)).chunk_nbytes
    assert extra == unpacking_bytes(str(path))
    assert open_store(str(path)).n_samples == 100
