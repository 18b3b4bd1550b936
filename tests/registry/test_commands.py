"""`promote`, `rollback` and `history`: what they say, and where a registry may be."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from bigsvm.model import versions as registry
from bigsvm.model.model_files import model_fingerprint
from tests.cli.conftest import Bigsvm, bigsvm
from tests.registry.made import make_model, spoil_nan, tree

__all__ = ["bigsvm"]


def test_commands(bigsvm: Bigsvm, tmp_path: Path) -> None:
    root = tmp_path / "reg"
    first, second = make_model(tmp_path / "a"), make_model(tmp_path / "b", 1)
    assert bigsvm("history", root).code == 66
    assert bigsvm("rollback", root, "--json").document["error"]["code"] == 66
    assert "promoted" in bigsvm("promote", root, first).out
    said = bigsvm("promote", root, second, "--note", "better", "--json")
    result = said.document["result"]
    assert (said.code, result["version"], result["from"], result["note"]) == (0, 2, 1, "better")
    document = bigsvm("history", root, "--json").document["result"]
    assert document["current_version"] == 2
    assert len(document["entries"]) == 2
    assert "version 2 is current" in bigsvm("history", root).out
    said = bigsvm("rollback", root, "--json")
    assert (said.code, said.document["result"]["version"], said.document["result"]["from"]) == (0, 1, 2)
    assert said.document["result"]["model_fingerprint"] == model_fingerprint(first)
    assert bigsvm("rollback", root, "--to", 7).code == 66
    assert bigsvm("rollback", root, "--to", 0).code == 2
    assert bigsvm("promote", root, tmp_path / "none").code == 66
    spoil_nan(second)
    said = bigsvm("promote", root, second)
    assert (said.code, said.out, said.err.count("\n")) == (65, "", 1)
    assert registry.current_version(root) == 1


@pytest.mark.parametrize("place", ["store", "store/inner", "model", "run", "bucket"])
def test_a_registry_is_made_where_nothing_else_is(bigsvm: Bigsvm, tmp_path: Path, place: str) -> None:
    """What was refused leaves nothing behind."""
    model, root = make_model(tmp_path / "m"), tmp_path / place
    if place.startswith("store"):
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "zarr.json").write_text("{}")
    elif place == "model":
        make_model(root, 1)
    elif place == "run":
        root.mkdir()
        (root / "run.json").write_text("{}")
    before = tree(tmp_path)
    said = bigsvm("promote", "s3://bucket/reg" if place == "bucket" else root, model)
    assert said.code == 73
    assert tree(tmp_path) == before
    assert not Path("s3:").exists()


@pytest.mark.parametrize("action", ["promote", "rollback"])
def test_a_note_that_is_not_utf8_is_kept(bigsvm: Bigsvm, tmp_path: Path, action: str) -> None:
    """The version was current, but its entry could not be written: every change from then on ended in a traceback."""
    root, note = tmp_path / "reg", os.fsdecode(b"caf\xe9")
    for number in range(3):
        given = ["--note", note] if action == "promote" and number == 1 else []
        assert bigsvm("promote", root, make_model(tmp_path / str(number), number), *given).code == 0
    if action == "rollback":
        assert bigsvm("rollback", root, "--note", note).code == 0
    assert [entry["note"] for entry in registry.history(root)].count(note) == 1
    assert "caf" in bigsvm("history", root).out
    assert bigsvm("history", root, "--json").code == 0
    if importlib.util.find_spec("matplotlib") is not None:
        assert bigsvm("report", root, "-o", tmp_path / "page.html").code == 0
