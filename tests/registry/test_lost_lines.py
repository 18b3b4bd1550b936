"""Lines of a history that were lost (a former copy was restored, a disk failed): no version goes, and it is told."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bigsvm.errors import MissingInput
from bigsvm.events import Event, Warned
from bigsvm.model import versions as registry
from tests.registry.made import make_model

KEPT = [kept for n in range(4) for kept in itertools.combinations(range(4), n)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three versions, of which the second is current: its history has four lines."""
    for seed in range(3):
        registry.promote(tmp_path / "reg", make_model(tmp_path / f"m{seed}", seed))
    registry.rollback(tmp_path / "reg")
    return tmp_path / "reg"


@pytest.mark.parametrize("kept", KEPT, ids=str)
def test_whichever_lines_are_lost_every_version_stays_and_it_is_told(root: Path, kept: tuple[int, ...]) -> None:
    path = root / "history.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[k] for k in kept))
    told: list[str] = []
    registry.history(root, told.append)
    seen: list[Event] = []
    registry.settle(root, seen.append)
    told += [event.message for event in seen if isinstance(event, Warned)]
    assert [folder.name for folder in sorted((root / "versions").iterdir())] == ["000001", "000002", "000003"]
    assert registry.current_version(root) == 2
    # A line is missed by the one after it.  That version 3 came and went leaves no trace.
    assert bool(told) == (kept != (0, 1))
    assert all(str(path) in sentence for sentence in told)


def test_a_whole_history_tells_nothing(root: Path) -> None:
    told: list[str] = []
    registry.history(root, told.append)
    (root / "current").unlink()
    registry.rollback(root, 1, emit=lambda event: told.append(str(event)))
    assert registry.promote(root, root / "versions" / "000003") == 4
    registry.history(root, told.append)
    assert told == []


def test_a_version_without_a_line_is_promoted_again(root: Path) -> None:
    (root / "history.jsonl").unlink()
    with pytest.raises(MissingInput, match="there is no earlier version") as caught:
        registry.rollback(root)
    assert f"bigsvm promote {root} {root / 'versions' / '000003'}" in caught.value.hint
    with pytest.raises(MissingInput, match="the history has no version 1") as caught:
        registry.rollback(root, 1)
    assert f"bigsvm promote {root} {root / 'versions' / '000001'}" in caught.value.hint
    assert registry.promote(root, root / "versions" / "000001") == 4
    assert registry.rollback(root) == 2
