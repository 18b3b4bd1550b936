"""Text that changes while it is read is refused: half of what it was and half of what it is would be taken for it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.events import Event, WorkAdvanced
from bigsvm.model.linear_model import LinearModel
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import predict
from bigsvm.store.text import compressed
from bigsvm.store.text.compressed import ByteSource

LINES = b"".join(b"%d 1:0.%d 3:1\n" % (k % 2, k) for k in range(40_000))
PACKED = {"": LINES, ".gz": gzip.compress(LINES, 1), ".zst": zstandard.ZstdCompressor(1).compress(LINES)}
MODEL = LinearModel(np.ones((1, 3)), np.zeros(1), np.array([0, 1]))
SMALL = FitConfig.of(memory="16MiB", threads=1)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def grow(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"1 1:1\n" * 1000)


def rewrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"1")
    os.utime(path, ns=(1, 1))


def use(command: str, path: Path, act: Callable[[], None]) -> Any:
    """Run a command that reads text, and `act` once it has told of its progress."""
    acted = []

    def emit(event: Event) -> None:
        if isinstance(event, WorkAdvanced) and not acted:
            acted.append(True)
            act()

    folder = path.parent
    if command == "ingest":
        return bigsvm.ingest(str(path), folder / "rows.zarr", memory="16MiB", chunk_bytes="64KiB", threads=1, emit=emit)
    if command == "predict":
        return predict(MODEL, str(path), folder / "labels.csv", "csv", SMALL, emit=emit)
    return evaluate(MODEL, str(path), SMALL, emit)


@pytest.mark.parametrize("change", [cut, grow, rewrite])
@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("command", ["ingest", "predict", "evaluate"])
def test_text_that_changes_is_refused(
    tmp_path: Path, command: str, suffix: str, change: Callable[[Path], None]
) -> None:
    path = tmp_path / f"rows.svm{suffix}"
    path.write_bytes(PACKED[suffix])
    with pytest.raises(DataError, match=r"changed while it was read|ends too early|not a sound"):
        use(command, path, lambda: change(path))
    assert not (tmp_path / "rows.zarr").exists()
    assert not (tmp_path / "labels.csv").exists()


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("command", ["ingest", "predict", "evaluate"])
def test_text_that_stays_is_read(tmp_path: Path, command: str, suffix: str) -> None:
    path = tmp_path / f"rows.svm{suffix}"
    path.write_bytes(PACKED[suffix])
    assert use(command, path, lambda: os.utime(path, ns=(1, path.stat().st_mtime_ns)))["n_samples"] == 40_000


def test_between_its_two_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`evaluate` reads labels first: the same number of other rows would be taken for these."""
    path = tmp_path / "rows.svm"
    path.write_bytes(LINES)
    opened: list[str] = []

    class Watched(ByteSource):
        def __init__(self, source: str) -> None:
            opened.append(source)
            if len(opened) == 2:
                path.write_bytes(b"".join(sorted(LINES.splitlines(keepends=True))))
            super().__init__(source)

    monkeypatch.setattr("bigsvm.store.text.text_files.ByteSource", Watched)
    with pytest.raises(DataError, match="changed while it was read"):
        evaluate(MODEL, str(path), SMALL)
    assert len(opened) == 2


def test_what_repeats_most_is_unpacked_in_small_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, most = tmp_path / "rows.svm.zst", 0
    path.write_bytes(zstandard.ZstdCompressor(19).compress(b"1 1:1\n" * (64 << 20 >> 2)))
    assert path.stat().st_size < 20_000
    plain = compressed._Streams._unpack

    def watched(self: Any, asked: int) -> bytes:
        nonlocal most
        content = plain(self, asked)
        most = max(most, len(content))
        return content

    monkeypatch.setattr(compressed._Streams, "_unpack", watched)
    out, total = np.empty(1 << 20, np.uint8), 0
    with ByteSource(str(path)) as source:
        while got := source.fill(out):
            total += got
    assert total == 6 * (64 << 20 >> 2)
    assert most < 12 << 20
