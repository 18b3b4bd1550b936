"""What this user may not read, search or write: outputs end with 73 before any work, and inputs with 66."""

from __future__ import annotations

import shutil
import stat
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Bigsvm
from tests.powers import without_powers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="root's powers are dropped as Linux has them")

OUTPUTS = [
    ["fit", "STORE", "-o", "OUT", "--overwrite"], ["fit", "STORE", "-o", "m", "--run", "OUT", "--overwrite"],
    ["fit", "STORE", "-o", "m", "--report", "OUT", "--overwrite"],
    ["tune", "STORE", "--Cs", "1:2:2", "-o", "OUT", "--overwrite"],
    ["tune", "STORE", "--Cs", "1:2:2", "--run", "OUT", "--overwrite"],
    ["tune", "STORE", "--Cs", "1:2:2", "--csv", "OUT", "--overwrite"],
    ["plot", "RUN", "-o", "OUT.svg", "--overwrite"], ["promote", "OUT", "MODEL"],
    ["ingest", "STORE", "OUT", "--overwrite"], ["predict", "MODEL", "STORE", "-o", "OUT", "--overwrite"],
    ["predict", "MODEL", "STORE", "-o", "OUT.zarr", "--overwrite"],
    ["predict", "MODEL", "STORE", "-o", "OUT.zarr", "--format", "anndata", "--overwrite"],
    ["dump", "STORE", "OUT", "--overwrite"], ["export", "MODEL", "OUT.npz", "--overwrite"],
    ["export", "MODEL", "-o", "OUT.npz", "--overwrite"], ["import", "MODEL.npz", "OUT", "--overwrite"],
    ["import", "MODEL.npz", "-o", "OUT", "--overwrite"], ["demo", "--dir", "OUT"],
    ["report", "MODEL", "-o", "OUT", "--overwrite"], ["watch", "RUN", "--once", "--openmetrics", "OUT"],
]  # fmt: skip
INPUTS = [
    ["fit", "IN.zarr"], ["fit", "STORE", "--warm-start", "IN"], ["fit", "STORE", "--config", "IN.toml"],
    ["tune", "IN.zarr", "--Cs", "1:2:2"], ["plan", "IN.zarr"], ["resume", "IN"], ["predict", "IN", "STORE"],
    ["predict", "MODEL", "IN.zarr"], ["evaluate", "IN", "STORE"], ["certify", "IN", "STORE"],
    ["certify", "MODEL", "IN.zarr"], ["export", "IN", "m.npz"], ["import", "IN.npz", "m"], ["inspect", "IN"],
    ["promote", "reg", "IN"], ["history", "IN"], ["rollback", "IN", "--to", "1"], ["plot", "IN"], ["report", "IN"],
    ["watch", "IN", "--once"], ["ingest", "IN.zarr", "o.zarr"], ["ingest", "IN.svm", "o.zarr"],
    ["dump", "IN.zarr", "o.svm"], ["verify", "IN.zarr"], ["seal", "IN.zarr"],
]  # fmt: skip


def named(parts: list[str]) -> str:
    return "-".join(part for part in parts if part.islower() or part.startswith(("IN", "OUT")))


@pytest.fixture
def places(store: Path, model: Path, bigsvm: Bigsvm) -> dict[str, str]:
    bigsvm("export", model, model.with_name("m.npz"), "--overwrite")
    return {"STORE": str(store), "RUN": f"{model}.run", "MODEL": str(model), "MODEL.npz": str(model.with_name("m.npz"))}


def told(err: str) -> list[str]:
    """The lines of standard error, without those about code that this or another test's process compiles."""
    of_compiling = ("waiting for process", "compiling", "loading compiled code")
    return [line for line in err.splitlines() if not line.startswith(of_compiling)]


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o400, 0o500, 0o600])
@pytest.mark.parametrize("where", ["empty", "full", "inside"])
@pytest.mark.parametrize("command", OUTPUTS, ids=named)
def test_a_folder_that_may_not_be_used_is_no_output(
    bigsvm: Bigsvm, places: dict[str, str], command: list[str], where: str, mode: int
) -> None:
    """With any command; a folder that may be searched is replaced by what is a folder itself, if it is empty."""
    out = "shut/OUT" if where == "inside" else "OUT"
    args = [places.get(part, part.replace("OUT", out)) for part in command]
    folder = Path("shut") if where == "inside" else Path(next(part for part in args if part.startswith("OUT")))
    if where == "full" and (command[0] == "import" or command[:4:3] == ["fit", "OUT"]):
        shutil.copytree(places["MODEL"], folder)  # which may be replaced otherwise
    else:
        folder.mkdir()
        if where == "full":
            (folder / "a").write_text("theirs")
    if (where == "inside" and mode == 0o300) or (where == "empty" and mode == 0o500):
        return  # these may be written to
    before = sorted(folder.rglob("*"))
    folder.chmod(mode)
    with without_powers():
        said = bigsvm(*args)
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    folder.chmod(0o700)
    assert said.code == 73, said.err
    assert len(told(said.err)) == 1
    assert "another" in said.err  # folder or name
    assert sorted(folder.rglob("*")) == before
    assert [path for path in Path().iterdir() if path.suffix != ".npz"] in ([folder], [])


@pytest.mark.parametrize("what", ["a folder", "a file", "inside"])
@pytest.mark.parametrize("command", INPUTS, ids=named)
def test_what_may_not_be_read_is_no_input(
    bigsvm: Bigsvm, places: dict[str, str], command: list[str], what: str, store: Path, model: Path
) -> None:
    name = next(part for part in command if part.startswith("IN"))
    only_a_file = Path(name).suffix in (".npz", ".svm", ".toml")
    if only_a_file == (what == "a folder") or (not only_a_file and what == "a file"):
        return
    shut = Path("shut" if what == "inside" else name)
    if what == "inside":
        shut.mkdir()
    path = shut / name if what == "inside" else shut
    if only_a_file:
        path.write_text("1 1:1\n")
    elif name == "IN.zarr":
        shutil.copytree(store, path)
    else:
        shutil.copytree(model, path)
    shut.chmod(0)
    with without_powers():
        said = bigsvm(*(places.get(part, part.replace(name, str(path))) for part in command))
    shut.chmod(0o700)
    assert said.code == 66, said.err
    assert len(told(said.err)) == 1
