"""The record of a run: its lines, its first and last moments."""

from __future__ import annotations

import errno
import json
import os
from io import FileIO
from pathlib import Path

import numpy as np
import pytest

from bigsvm.errors import DataError, MissingInput, OutputError
from bigsvm.events import CertificateMade, EpochEnd, FitEnded, FitStarted, Warned, WorkAdvanced
from bigsvm.observe import jsonl
from bigsvm.observe.jsonl import JsonlFile, event_line, plain, read_events

STARTED = FitStarted({"block_rows": 10}, {"C": 1.0}, "abc", {"bigsvm": "0.1.0"})
PROOF = CertificateMade(2.0, 1.0, 10.0, 9.5, 0.05, 1.25)


def test_a_line_is_golden() -> None:
    assert event_line(PROOF, 1.5) == (
        '{"event": "CertificateMade", "at_s": 1.5, "epochs": 2.0, "passes": 1.0, "objective": 10.0, '
        '"dual_objective": 9.5, "relative_gap": 0.05, "wall_s": 1.25}'
    )


def test_what_json_cannot_hold_becomes_what_it_can() -> None:
    value = {
        1: np.float64(0.5),
        "a": [np.int64(2), np.array([1.0, np.nan])],
        "p": Path("x"),
        "i": float("inf"),
    }
    text = json.dumps(plain(value), allow_nan=False)
    assert json.loads(text) == {"1": 0.5, "a": [2, [1.0, None]], "p": "x", "i": None}
    assert json.loads(event_line(EpochEnd(1.0, 1.0, 5, float("nan"), 0.1), 0.0))["gap_estimate"] is None


def test_write_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run" / "events.jsonl"
    with JsonlFile(path) as record:
        assert not path.parent.exists()  # nothing before the first event
        for event in (STARTED, WorkAdvanced("pass", 1), PROOF, FitEnded("converged")):
            record(event)
            assert len(list(read_events(path))) > 0  # a line is there as soon as it is written
    events = list(read_events(path))
    assert [event["event"] for event in events] == ["FitStarted", "CertificateMade", "FitEnded"]
    assert events[0]["plan"] == {"block_rows": 10}
    assert events[0]["store_fingerprint"] == "abc"
    assert all(event["at_s"] >= 0 for event in events)


def test_a_torn_last_line_is_the_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with JsonlFile(path) as record:
        record(STARTED)
        record(PROOF)
    whole = path.read_bytes()
    for cut in (len(whole) - 1, len(whole) - 20, whole.index(b"\n") + 2):
        path.write_bytes(whole[:cut])
        assert next(read_events(path))["event"] == "FitStarted"
        assert len(list(read_events(path))) == (2 if cut == len(whole) - 1 else 1)


def test_going_on_after_a_torn_line_cuts_it_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with JsonlFile(path) as record:
        record(STARTED)
    with open(path, "a") as file:
        file.write('{"event": "Certif' + "x" * 100_000)
    with JsonlFile(path) as record:
        record(PROOF)
    assert [event["event"] for event in read_events(path)] == ["FitStarted", "CertificateMade"]


def test_a_torn_only_line_leaves_an_empty_record(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("{")
    with JsonlFile(path) as record:
        record(PROOF)
    assert [event["event"] for event in read_events(path)] == ["CertificateMade"]


def test_a_bad_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(event_line(STARTED, 0) + "\nnot json\n" + event_line(PROOF, 0) + "\n")
    with pytest.raises(DataError) as seen:
        list(read_events(path))
    assert seen.value.where.endswith("events.jsonl:2")


def test_no_record(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        list(read_events(tmp_path / "none.jsonl"))


def test_closing_twice_and_unused(tmp_path: Path) -> None:
    record = JsonlFile(tmp_path / "a" / "events.jsonl")
    record.close()
    record.close()
    assert not (tmp_path / "a").exists()
    record(Warned("late"))  # a record opens again: nothing is lost
    record.close()
    assert len(list(read_events(record.path))) == 1


class SmallDisk(FileIO):
    """A file on a disk that has room for so many bytes in all; one that gets full takes what it can, then refuses."""

    room, why = 0, errno.ENOSPC

    def write(self, content: bytes) -> int:
        if not SmallDisk.room:
            raise OSError(SmallDisk.why, os.strerror(SmallDisk.why))
        n = min(len(content), SmallDisk.room)
        SmallDisk.room -= n
        return super().write(content[:n])


@pytest.mark.parametrize("why", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG], ids=errno.errorcode.get)
@pytest.mark.parametrize("went_before", [False, True])
@pytest.mark.parametrize("part", [0, 1, 40])
@pytest.mark.parametrize("n_whole", [0, 1, 2])
def test_a_disk_that_becomes_full_leaves_whole_lines_or_no_file(
    n_whole: int, part: int, went_before: bool, why: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, line = tmp_path / "events.jsonl", event_line(PROOF, 0.0) + "\n"
    if went_before:
        path.write_text(line)
    with JsonlFile(path) as record:
        monkeypatch.setattr(jsonl, "event_line", lambda event, at_s: line[:-1])  # as long as any
        monkeypatch.setattr(jsonl, "open", lambda name, mode, **_: SmallDisk(name, mode), raising=False)
        monkeypatch.setattr(SmallDisk, "why", why)
        monkeypatch.setattr(SmallDisk, "room", n_whole * len(line) + part)
        for _ in range(n_whole):
            record(PROOF)
        with pytest.raises(OutputError) as caught:
            record(PROOF)
    assert caught.value.where == str(path)
    assert f"{os.strerror(why)}, {len(line)} bytes needed" in caught.value.what
    n_lines = n_whole + went_before
    assert path.exists() == (n_lines > 0)
    assert (path.read_text() if n_lines else "") == n_lines * line
