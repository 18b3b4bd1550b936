"""Names of files and notes whose bytes are not UTF-8, in every command that takes a path."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import bigsvm as package
from bigsvm.cli.session import write_json
from bigsvm.errors import DataError
from bigsvm.observe.jsonl import without_surrogates
from tests.cli.conftest import Bigsvm

ODD = os.fsdecode(b"caf\xe9")
AFTER_A_FIT: list[list[str]] = [
    ["inspect", "MODEL"], ["inspect", "STORE"], ["certify", "MODEL", "STORE"], ["evaluate", "MODEL", "STORE"],
    ["predict", "MODEL", "STORE", "-o", f"{ODD}.csv"], ["predict", "MODEL", "STORE", "-o", f"{ODD}.parquet"],
    ["dump", "STORE", f"{ODD}.svm"], ["dump", "STORE", f"{ODD}.jsonl"], ["seal", "STORE"], ["plan", "STORE"],
    ["export", "MODEL", f"{ODD}.npz"], ["export", "MODEL", f"{ODD}.txt", "--format", "liblinear"],
    ["promote", f"{ODD}.registry", "MODEL", "--note", ODD], ["watch", "MODEL.run", "--once"],
    ["watch", "MODEL.run", "--once", "--openmetrics", f"{ODD}.prom"],
    ["tune", "STORE", "--run", f"{ODD}.tune", "--Cs", "0.1:1:2"],
]  # fmt: skip
DRAWN: list[list[str]] = [
    ["plot", "MODEL.run", "-o", f"{ODD}.svg"], ["plot", "MODEL.run", "MODEL.run", "-o", f"{ODD}.png"],
    ["report", "MODEL", "-o", f"{ODD}.html"], ["report", "MODEL.run", "-o", f"{ODD}.html"],
    ["fit", "STORE", "-o", f"{ODD}.other", "--report", f"{ODD}.html"],
]  # fmt: skip


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, which is not sealed, and a model of it."""
    root = tmp_path_factory.mktemp("odd")
    X = np.random.default_rng(0).standard_normal((60, 3))  # float64: a search of such rows is compiled anyway
    group = zarr.create_group(root / f"{ODD}.zarr")
    for name, values in {"X": X, "obs/label": (X[:, 0] > 0).astype(np.int8)}.items():
        group.create_array(name, data=values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package.fit(root / f"{ODD}.zarr").model.save(root / f"{ODD}.model")
    return root


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("command", [*AFTER_A_FIT, *DRAWN], ids=lambda parts: "-".join(parts).replace(ODD, "odd"))
def test_every_command_takes_such_names(
    bigsvm: Bigsvm, fitted: Path, command: list[str], as_json: bool, tmp_path: Path
) -> None:
    if command in DRAWN:
        pytest.importorskip("matplotlib")
    shutil.copytree(fitted, tmp_path / "here")
    os.chdir(tmp_path / "here")
    assert bigsvm("fit", f"{ODD}.zarr", "-o", f"{ODD}.model", "--overwrite", "--quiet").code == 0
    named = [part.replace("STORE", f"{ODD}.zarr").replace("MODEL", f"{ODD}.model") for part in command]
    said = bigsvm(*named, *(["--json"] if as_json else []))
    assert said.code == 0, said.err


FAILING = [
    ["fit", "STORE", "-o", "MODEL"], ["fit", f"{ODD}.none"], ["inspect", f"{ODD}.none"],
    ["predict", "MODEL", "STORE", "-o", "MODEL"],
    ["resume", f"{ODD}.run"], ["promote", ODD, ODD], ["ingest", "STORE", "STORE"], ["fit", "STORE", "--label", ODD],
]  # fmt: skip


@pytest.mark.parametrize("command", [*AFTER_A_FIT, *FAILING], ids=lambda parts: "-".join(parts).replace(ODD, "odd"))
def test_json_has_such_names_as_text_that_everybody_reads(
    bigsvm: Bigsvm, fitted: Path, command: list[str], tmp_path: Path
) -> None:
    """No lone surrogates, which many readers of JSON refuse; in documents, and in events on standard error."""
    shutil.copytree(fitted, tmp_path / "here")
    os.chdir(tmp_path / "here")
    bigsvm("fit", f"{ODD}.zarr", "-o", f"{ODD}.model", "--overwrite", "--quiet")
    named = [part.replace("STORE", f"{ODD}.zarr").replace("MODEL", f"{ODD}.model") for part in command]
    said = bigsvm(*named, "--json", "--log-format", "json")
    assert (said.code == 0) == (command not in FAILING), said.err
    for line in (said.out, *said.err.splitlines()):
        document = json.dumps(json.loads(line), ensure_ascii=False)
        assert document.encode()
    assert "caf\\\\xe9" in said.out or command == ["plan", "STORE"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("caf\udce9", "caf\\xe9"), ("\udc80\udcff", "\\x80\\xff"), ("\ud800 \udc7f \udfff", "\\ud800 \\udc7f \\udfff"),
     ("café \U0001f600", "café \U0001f600"), ("plain", "plain"), (7, 7), (None, None)],
)  # fmt: skip
def test_lone_surrogates_are_escaped_wherever_they_are(text: Any, shown: Any) -> None:
    assert without_surrogates(text) == shown
    assert without_surrogates({text: [text, {"a": text}]}) == {shown: [shown, {"a": shown}]}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("name", ["plain", "\u00e9", "\u03a9", "\U0001f600", "\udcff"])
def test_json_is_printed_in_every_encoding(name: str, encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    with contextlib.redirect_stdout(stream):
        write_json({"name": name})
    stream.flush()
    written = stream.buffer.getvalue()  # type: ignore[attr-defined]
    assert json.loads(written.decode(encoding)) == {"name": without_surrogates(name)}


def test_a_label_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Such labels come from names of folders."""
    X = np.arange(20.0).reshape(10, 2)
    y = np.array([ODD, "b"] * 5)
    for use in (lambda: package.fit(X, y), lambda: package.ingest(X, tmp_path / "x.zarr", y=y)):
        with pytest.raises(DataError, match=r"label .*is not valid Unicode"):
            use()


@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=str)
def test_a_line_end_in_a_name_makes_no_second_line(bigsvm: Bigsvm, fitted: Path, quiet: list[str]) -> None:
    """Warnings and advice had it as it is, so that readers of the log found half a warning."""
    shutil.copytree(fitted / f"{ODD}.zarr", "a\nb.zarr")
    said = [
        bigsvm("fit", "a\nb.zarr", "-o", "a\nb.model", *quiet),  # warns of a store that is not sealed
        bigsvm("fit", "a\nc.zarr", *quiet),  # asks whether a\nb.zarr was meant
        bigsvm("ingest", "a\nc.svm", "c.zarr", *quiet),
    ]
    assert [one.code for one in said] == [0, 66, 66]
    told = [line for one in said for line in one.err.splitlines() if "zarr" in line or "svm:" in line]
    assert len(told) == (2 if quiet else 3)
    assert all("bigsvm: " in line for line in told)
    assert "a b.zarr" in told[-2]
