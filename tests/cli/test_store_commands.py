"""Commands that write and check stores, end to end: ingest, dump, verify and seal."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tests.cli.conftest import Bigsvm


def test_ingest_dump_and_back(bigsvm: Bigsvm, store: Path) -> None:
    assert bigsvm("dump", store, "a.svm").code == 0
    said = bigsvm("ingest", "a.svm", "a.zarr", "--n-features", 20000, "--json")
    assert said.code == 0, said.err
    assert said.document["result"]["n_samples"] == 1500
    ours = bigsvm("inspect", store, "--json").document["result"]
    back = bigsvm("inspect", "a.zarr", "--json").document["result"]
    assert back["content_fingerprint"] == ours["content_fingerprint"]
    assert bigsvm("ingest", "a.svm", "a.zarr").code == 73
    assert bigsvm("dump", store, "a.svm").code == 73
    assert bigsvm("dump", store, "a.svm", "--overwrite").code == 0
    assert bigsvm("dump", store, "-", "--json").code == 2
    text = bigsvm("dump", store, "-", "--quiet").out
    assert text == Path("a.svm").read_text()


def test_ingest_names_the_bad_line(bigsvm: Bigsvm) -> None:
    Path("bad.svm").write_text("1 1:1\n-1 2:x\n")
    said = bigsvm("ingest", "bad.svm", "a.zarr", "--json")
    assert said.code == 65
    assert said.document["error"]["where"].endswith("bad.svm:2")
    assert not Path("a.zarr").exists()
    assert bigsvm("ingest", "none.svm", "a.zarr").code == 66


def test_the_summary_of_ingest_names_the_weights(bigsvm: Bigsvm) -> None:
    Path("rows.csv").write_text("a,label,heft\n1,0,2\n-1,1,0.5\n")
    for options, told, shown in (["--weight", "heft"], "column heft", "from column heft"), ([], None, "none"):
        said = bigsvm("ingest", "rows.csv", "rows.zarr", "--overwrite", *options)
        assert [line.split(maxsplit=1)[1] for line in said.out.splitlines() if "weights" in line] == [shown]
        said = bigsvm("ingest", "rows.csv", "rows.zarr", "--overwrite", *options, "--json")
        assert said.document["result"]["weights_from"] == told


def test_verify_and_seal(bigsvm: Bigsvm, store: Path) -> None:
    shutil.copytree(store, "s.zarr")
    said = bigsvm("verify", "s.zarr", "--json")
    assert said.code == 0
    assert said.document["result"]["n_bad"] == 0
    chunk = next(path for path in Path("s.zarr/X/data/c").iterdir() if path.is_file())
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    said = bigsvm("verify", "s.zarr", "--json")
    assert said.code == 65
    assert "X/data/c/" in said.document["error"]["message"]
    chunk.write_bytes(bytes(np.bitwise_xor(np.frombuffer(content, np.uint8), 0)))
    said = bigsvm("seal", "s.zarr", "--json")
    assert said.code == 0
    key = str(chunk.relative_to("s.zarr"))
    assert [key in warning for warning in said.document["warnings"]] == [True]
    assert bigsvm("verify", "s.zarr").code == 0
    assert bigsvm("seal", "s.zarr", "--json").document["warnings"] == []
    assert bigsvm("verify", "none.zarr").code == 66
    Path("rows.svm").write_text("1 1:1\n")
    Path("folder").mkdir()
    for command in ("seal", "verify"):
        said = bigsvm(command, "rows.svm", "--json")
        assert (said.code, "bigsvm ingest" in said.document["error"]["hint"]) == (66, True)
        said = bigsvm(command, "folder", "--json")
        assert (said.code, said.document["error"]["message"]) == (66, "no Zarr store here")
    Path("s.zarr/bigsvm-manifest.json").unlink()
    assert bigsvm("verify", "s.zarr").code == 66
