"""Arrays are read from any thread: Python's parser of their headers does not always bear two at once."""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bigsvm.files.plain_arrays import parsed, write_array
from bigsvm.model.exchange import npz
from bigsvm.model.linear_model import LinearModel, load_model
from bigsvm.run.api import fit
from bigsvm.store.ingest.sources.sequential import ZipMember, open_npy, open_npz
from bigsvm.store.state.state_files import read_tree, write_tree

ROOT = Path(__file__).parents[1]
ARRAY = np.arange(6.0).reshape(3, 2)
MODEL = LinearModel(np.ones((1, 3)), np.zeros(1), np.array([-1, 1]))


@pytest.fixture
def disturbed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every other text that Python's parser is given fails, as it does where another thread got in its way."""
    plain, texts = ast.literal_eval, list[str]()

    def literal_eval(text: str) -> object:
        texts.append(text)
        if len(texts) % 2:
            raise SystemError("AST constructor recursion depth mismatch (before=39, after=159)")
        return plain(text)

    monkeypatch.setattr(ast, "literal_eval", literal_eval)
    return texts


def from_npy(folder: Path) -> np.ndarray:
    np.save(folder / "X.npy", ARRAY)
    return open_npy(folder / "X.npy").take(3)


def from_npz(folder: Path) -> np.ndarray:
    np.savez(folder / "X.npz", X=ARRAY)
    with open_npz(folder / "X.npz") as archive, contextlib.ExitStack() as stack:
        return ZipMember(archive, "X", "X.npz", stack).take(3)


def from_saved_state(folder: Path) -> np.ndarray:
    (folder / "state").mkdir()
    write_tree(folder / "state", {"X": ARRAY})
    return np.asarray(read_tree(folder / "state")["X"])


def from_model(folder: Path) -> np.ndarray:
    MODEL.save(folder / "model", alpha=np.ones((1, 4)))
    load_model(folder / "model")
    return ARRAY


def from_exported_model(folder: Path) -> np.ndarray:
    with open(folder / "model.npz", "w+b") as file:
        npz.write(file, MODEL)
        npz.read(file, folder / "model.npz")
    return ARRAY


READERS = (from_npy, from_npz, from_saved_state, from_model, from_exported_model)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_a_disturbed_parser_is_asked_again(
    read: Callable[[Path], np.ndarray], tmp_path: Path, disturbed: list[str]
) -> None:
    assert np.array_equal(read(tmp_path), ARRAY)
    assert len(disturbed) >= 2


def test_what_is_wrong_each_time_is_said() -> None:
    def broken() -> None:
        raise SystemError("a bug elsewhere")

    with pytest.raises(SystemError, match="a bug elsewhere"):
        parsed(broken)


@pytest.mark.parametrize(("solver", "loss"), [("dcd", "hinge"), ("cd", "squared_hinge")])
def test_a_fit_from_a_disk_does_not_mind(
    solver: str, loss: str, tmp_path: Path, disturbed: list[str], streaming_hundreds: None
) -> None:
    """The second fit reads the working copy of the first, with its orders of rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 20)).astype(np.float32)
    rows = X, np.where(X @ rng.standard_normal(20) > 0, 1, -1)
    models = []
    for name in ("first", "second"):
        read = len(disturbed)
        result = fit(rows, solver=solver, loss=loss, scratch=str(tmp_path), tol=1e-2)
        result.save_model(tmp_path / name)
        models.append(load_model(tmp_path / name))
        assert len(disturbed) > read
    assert np.array_equal(models[0].coef, models[1].coef)


def test_no_other_code_has_numpy_parse_headers() -> None:
    """Reading anew is for all, so that a reader to come has it too."""
    parsers = {"load", "read_array", "read_array_header_1_0", "read_array_header_2_0", "open_memmap", "literal_eval"}
    found = {
        f"{path.relative_to(ROOT)}: {ast.unparse(node.func)}"
        for folder in ("bigsvm", "pipelines")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "plain_arrays.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in parsers
        and ast.unparse(node.func).startswith(("np.", "numpy.", "ast."))
    }
    assert found == set()


@pytest.mark.parametrize(
    "array",
    [ARRAY, ARRAY[:, 0], ARRAY.astype(">i4"), np.zeros((0, 3)), np.arange(5) > 2],
    ids=lambda one: str(one.dtype),
)
def test_an_array_is_written_to_the_bytes_of_numpy(array: np.ndarray) -> None:
    ours, theirs = io.BytesIO(), io.BytesIO()
    write_array(ours, array)
    np.save(theirs, array)
    assert ours.getvalue() == theirs.getvalue()
