"""Names of outputs that cannot be taken: told before any work, whatever has them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bigsvm.cli.commands.training.fit import stem_of
from bigsvm.files import atomic
from bigsvm.files.outputs import check_plain_output, new_output
from tests.cli.conftest import Bigsvm


@pytest.fixture
def nothing_begins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command writes has a temporary name first: asking for one, but to see how long it is, is an error here."""
    plain = atomic.temporary_name
    over: list[bool] = []  # modules that are imported meanwhile keep this function for ever

    def only_asked(final: Path) -> Path:
        assert over or sys._getframe(1).f_code.co_name == "check_name", f"work began for {final}"
        return plain(final)

    monkeypatch.setattr(atomic, "temporary_name", only_asked)
    yield
    over.append(True)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def dangling_far(path: Path) -> None:
    path.symlink_to("no/such/folder/out")


def chain(path: Path) -> None:
    path.symlink_to("link")
    Path("link").symlink_to("nowhere")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_file(path: Path) -> None:
    path.touch()


TAKEN = [dangling, dangling_far, chain, loop, a_file]
COMMANDS: dict[str, tuple[str, Callable[[Path, Path, str], list[Any]]]] = {
    **{
        f"predict {form}": (f"out.{form}", lambda store, model, out: ["predict", model, store, "-o", out])
        for form in ("jsonl", "csv", "parquet", "zarr")
    },
    "predict anndata": ("out.zarr", lambda store, model, out: [
        "predict", model, store, "-o", out, "--format", "anndata"
    ]),
    **{
        f"dump {form}": (f"out.{form}", lambda store, model, out: ["dump", store, out])
        for form in ("svm", "csv", "parquet", "zarr")
    },
    "export": ("out.npz", lambda store, model, out: ["export", model, out]),
    "report": ("out.html", lambda store, model, out: ["report", model, "-o", out]),
    "plot": ("out.svg", lambda store, model, out: ["plot", f"{model}.run", "-o", out]),
    "tune --csv": ("out.csv", lambda store, model, out: ["tune", store, "--c-grid", "1", "--csv", out]),
    "tune --refit": ("out", lambda store, model, out: ["tune", store, "--c-grid", "1", "--refit", "-o", out]),
    "fit": ("out", lambda store, model, out: ["fit", store, "-o", out]),
    "fit --run": ("out", lambda store, model, out: ["fit", store, "-o", "m", "--run", out]),
    "fit --report": ("out.html", lambda store, model, out: ["fit", store, "-o", "m", "--report", out]),
    "ingest": ("out.zarr", lambda store, model, out: ["ingest", "a.svm", out]),
}  # fmt: skip

IN_A_FOLDER = ("predict zarr", "predict anndata", "dump zarr", "ingest")
"""What they write is a folder that is made before the first row, beside its name."""


@pytest.mark.usefixtures("nothing_begins")
@pytest.mark.parametrize("taken", TAKEN, ids=lambda how: how.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_is_taken_is_told_before_any_work(
    command: str, taken: Callable[[Path], None], bigsvm: Bigsvm, store: Path, model: Path
) -> None:
    Path("a.svm").write_text("1 1:1\n-1 1:-1\n")
    name, words = COMMANDS[command]
    taken(Path(name))
    before = sorted(path.name for path in Path().iterdir())
    said = bigsvm(*words(store, model, name))
    assert said.code == 73, said.err
    assert "the output exists (choose" in said.err or (taken is loop and "Too many levels" in said.err), said.err
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.parametrize("above", [dangling, dangling_far, a_file], ids=lambda how: how.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_so_is_a_folder_that_nothing_can_be_written_into(
    command: str,
    above: Callable[[Path], None],
    bigsvm: Bigsvm,
    store: Path,
    model: Path,
    request: pytest.FixtureRequest,
) -> None:
    if command not in IN_A_FOLDER:
        request.getfixturevalue("nothing_begins")
    Path("a.svm").write_text("1 1:1\n-1 1:-1\n")
    name, words = COMMANDS[command]
    above(Path("folder"))
    before = sorted(path.name for path in Path().iterdir())
    said = bigsvm(*words(store, model, f"folder/{name}"))
    assert said.code == 73, said.err
    assert "cannot write" in said.err, said.err
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.usefixtures("nothing_begins")
def test_so_is_the_name_of_the_model_of_a_run_that_was_killed(bigsvm: Bigsvm, store: Path) -> None:
    Path("out.run").mkdir()
    Path("out.run/lock").touch()  # as a run leaves it that was killed before its first event
    dangling(Path("out"))
    said = bigsvm("fit", store, "-o", "out", "--resume")
    assert (said.code, "the output exists (choose" in said.err) == (73, True), said.err


@pytest.mark.parametrize("taken", [dangling, dangling_far, chain], ids=lambda how: how.__name__)
def test_a_link_to_nothing_is_replaced_where_that_is_asked(
    taken: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("out.csv")
    taken(out)
    check_plain_output(out, overwrite=True)
    with new_output(out, overwrite=True) as file:
        file.write(b"1")
    assert (out.is_symlink(), out.read_bytes()) == (False, b"1")


@pytest.mark.parametrize(
    ("store", "stem"),
    [
        ("/data/a9a.zarr/", "a9a"),
        ("vectors/*.parquet", "vectors"),
        ("tables/*/day-?.csv", "tables"),
        ("*.csv", "bigsvm"),
        ("../*.csv", "bigsvm"),
        ("day[12].csv", "bigsvm"),
        ("s3://bucket/sets/*.parquet", "sets"),
        ("https://host/new.csv?version=1.2", "new"),
        ("https://host/sets/new.csv?sig=a*b", "new"),
    ],
)
def test_no_model_has_the_name_of_a_pattern(store: str, stem: str) -> None:
    assert stem_of(store) == stem
