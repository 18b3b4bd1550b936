"""Records of lines of which a killed process has torn the last one: the next line is whole, and readers go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bigsvm.events import Warned
from bigsvm.files.appending import append_whole, json_line
from bigsvm.model import versions as registry
from bigsvm.observe.jsonl import JsonlFile
from bigsvm.store.remote.journal import NAME, Journal
from pipelines.steps import record
from tests.cli.conftest import Bigsvm
from tests.cli.conftest import bigsvm as command
from tests.registry.made import make_model

__all__ = ["command"]

LINES = [json_line({"n": 0, "text": "one"}), json_line({"n": 1, "text": "line {end\n} \u00e9"})]


def parsed(content: bytes) -> list[Any]:
    """The lines that are JSON."""
    found = []
    for line in content.split(b"\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def after(path: Path, content: bytes, line: bytes) -> bytes:
    """What a file holds after a line was appended to this content."""
    path.write_bytes(content)
    with open(path, "a+b", buffering=0) as file:
        append_whole(file, line)
    return path.read_bytes()


def test_a_line_after_any_cut_is_whole(tmp_path: Path) -> None:
    whole = b"".join(LINES)
    for cut in range(len(whole) + 1):
        found = after(tmp_path / "record", whole[:cut], LINES[0])
        kept = whole[:cut]
        assert found == (kept if not kept or kept.endswith(b"\n") else kept + b"\n") + LINES[0]
        assert parsed(found)[-1] == {"n": 0, "text": "one"}
        # A line that lacks nothing but its end is whole.
        assert len(parsed(found)) == 1 + (cut >= len(LINES[0]) - 1) + (cut >= len(whole) - 1)


RECORDS: dict[str, Callable[[Path, int], Any]] = {
    "nights": lambda path, n: record(SimpleNamespace(folder=path.parent), {"n": n}),  # type: ignore[arg-type]
    "events": lambda path, n: record_event(path, n),
    "pieces": lambda path, n: record_piece(path, n),
}
NAMES = {"nights": "retrain.jsonl", "events": "events.jsonl", "pieces": NAME}


def record_event(path: Path, n: int) -> None:
    with JsonlFile(path) as file:
        file(Warned(f"n {n}"))


def record_piece(path: Path, n: int) -> None:
    journal = Journal(path.parent)
    journal.add("file", n, b"content")
    journal.close()


@pytest.mark.parametrize("kind", RECORDS)
def test_no_record_loses_two_lines(kind: str, tmp_path: Path) -> None:
    path = tmp_path / NAMES[kind]
    RECORDS[kind](path, 0)
    RECORDS[kind](path, 1)
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    for cut in range(first, len(content) + 1):
        path.write_bytes(content[:cut])
        RECORDS[kind](path, 2)
        found = [str(line) for line in parsed(path.read_bytes())]
        assert "2" in found[-1]
        assert len(found) >= 2
        assert found[0] == str(json.loads(content[:first]))


def test_a_torn_line_of_a_history_is_told(tmp_path: Path, command: Bigsvm) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "a"))
    content = (root / "history.jsonl").read_bytes()
    assert "torn" not in command("history", str(root)).err
    for rest in (b"{", content[:-1], content[: len(content) // 2]):
        (root / "history.jsonl").write_bytes(content + rest)
        done = command("history", str(root))
        assert done.code == 0
        assert "history.jsonl: the last line was torn by a kill, and is left out" in done.err
    registry.promote(root, make_model(tmp_path / "b", 1))
    assert [entry["version"] for entry in registry.history(root)] == [1, 2]
    assert "torn" not in command("history", str(root)).err


@pytest.mark.parametrize("content", ["garbage", "null", "[1]"])
@pytest.mark.parametrize(
    ("file", "words", "remedy"),
    [
        ("r/run.json", ["report", "r", "--text"], "without run.json"),
        ("r/run.json", ["resume", "r"], "bigsvm fit STORE --run r --resume"),
        ("r/events.jsonl", ["report", "r", "--text"], "repair or delete the line"),
        ("reg/current/x", ["rollback", "reg"], "move it away, then: bigsvm rollback reg --to N"),
    ],
)
def test_a_damaged_record_names_what_can_be_done(
    file: str, words: list[str], remedy: str, content: str, command: Bigsvm, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("r", "reg/current", "reg/versions"):
        Path(folder).mkdir(parents=True)
    Path("r/run.json").write_text("{}")
    Path(file).write_text(f"{content}\n")
    said = command(*words)
    assert said.code == 65, said.err
    assert f"({remedy}" in said.err
