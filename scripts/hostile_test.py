#!/usr/bin/env python3
"""Stores and models that want to do harm: every one is refused, in time, in little memory, without running anything.

Each case changes a copy of a good store or model, and is tried twice: as it is, and with all digests made again, as
whoever means harm would do.  A case is clean when bigsvm ends with exit 65, 66, 73, 74 or 78 and one line, or gives the
right model after all; within 10 s; within 1 GiB; without an unpickled object (audit hook); with nothing written
outside the store.

    scripts/hostile_test.py
    scripts/hostile_test.py --smoke      every third case
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr
import zstandard

import bigsvm
from bigsvm.cli.main import run as command_line
from bigsvm.kernels.rows import CSR
from bigsvm.problem.kernel import Kernel
from bigsvm.problem.kernel_model import KernelModel
from bigsvm.store.files import file_digest

REFUSED = {65, 66, 73, 74, 78}
MOST_MEMORY, MOST_TIME = 1 << 30, 10
BOMB = 4 << 30
Case = Callable[[Path], None]


class Payload:
    """Says that it ran."""

    def __reduce__(self) -> Any:
        return (os.mkdir, (os.environ["BIGSVM_PAYLOAD"],))


def edit(name: str, change: Callable[[dict[str, Any]], Any]) -> Case:
    """Change a JSON document of the store."""

    def case(root: Path) -> None:
        document = json.loads((root / name).read_text())
        found = change(document)
        (root / name).write_text(json.dumps(document if found is None else found))

    return case


def put(name: str, content: bytes) -> Case:
    """Put bytes in the place of a file."""

    def case(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).unlink(missing_ok=True)
        (root / name).write_bytes(content)

    return case


def pipe(name: str) -> Case:
    """A named pipe that nobody writes to."""

    def case(root: Path) -> None:
        (root / name).unlink()
        os.mkfifo(root / name)

    return case


def link(name: str, to: str) -> Case:
    """A link in the place of a file."""

    def case(root: Path) -> None:
        (root / name).unlink()
        (root / name).symlink_to(to)

    return case


def values(name: str, change: Callable[[np.ndarray], Any]) -> Case:
    """Change numbers of an array, through zarr."""

    def case(root: Path) -> None:
        array = zarr.open_array(root / name, mode="r+")
        content = array[:]
        found = change(content)
        array[:] = content if found is None else found

    return case


def array_in(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Case:
    """Change a .npy file of a model."""

    def case(root: Path) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            np.save(root / name, change(np.load(root / name)))

    return case


def codec(name: str, content: bytes, *codecs: dict[str, Any]) -> Case:
    """An array of one chunk with that content, to be decoded by those codecs."""

    def case(root: Path) -> None:
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        edit(f"{name}/zarr.json", lambda d: d.update(codecs=[little, *codecs]))(root)
        for path in (root / name / "c").iterdir():
            path.write_bytes(content)

    return case


def set_in(name: str, *path: Any) -> Case:
    """Set a value deep in a document: keys, then the value."""

    def change(document: dict[str, Any]) -> None:
        *keys, last, value = path
        for key in keys:
            document = document[key]
        document[last] = value

    return edit(name, change)


def old_store(root: Path, **changes: Any) -> None:
    """A store of Zarr 2 in its place, with changes to the metadata of X/data."""
    shutil.rmtree(root)
    group = zarr.open_group(root, mode="w", zarr_format=2)
    group.create_array("X", data=np.ones((20, 3), np.float32), compressors=None)
    group.create_array("obs/label", data=np.arange(20) % 2, compressors=None)
    document = json.loads((root / "X/.zarray").read_text())
    document.update(changes)
    (root / "X/.zarray").write_text(json.dumps(document))


def object_chunks(root: Path, **changes: Any) -> None:
    """Chunks that are pickles."""
    old_store(root, dtype="|O", **changes)
    for path in (root / "X").glob("[0-9]*"):
        path.write_bytes(pickle.dumps(np.array([Payload()] * 60, object)))


def zstd_bomb() -> bytes:
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    piece = bytes(1 << 24)
    return b"".join([compressor.compress(piece) for _ in range(BOMB >> 24)]) + compressor.flush()


def deflate_bomb(wbits: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, wbits)
    piece = bytes(1 << 24)
    return b"".join([compressor.compress(piece) for _ in range(64)]) + compressor.flush()


DATA, INDICES, INDPTR, GROUP, CODES = "X/data", "X/indices", "X/indptr", "X/zarr.json", "obs/label/codes"
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}


def deep(document: dict[str, Any]) -> None:
    inner: Any = 1
    for _ in range(900):
        inner = [inner]
    document["attributes"]["deep"] = inner


STORES: dict[str, Case] = {
    "shape 2^62": set_in(f"{DATA}/zarr.json", "shape", [1 << 62]),
    "shape 2^70": set_in(f"{DATA}/zarr.json", "shape", [1 << 70]),
    "shape -1": set_in(f"{DATA}/zarr.json", "shape", [-1]),
    "shape 1.5": set_in(f"{DATA}/zarr.json", "shape", [1.5]),
    "shape true": set_in(f"{DATA}/zarr.json", "shape", [True]),
    "shape text": set_in(f"{DATA}/zarr.json", "shape", "many"),
    "shape of 1000 axes": set_in(f"{DATA}/zarr.json", "shape", [2] * 1000),
    "no shape": set_in(f"{DATA}/zarr.json", "shape", []),
    "chunk 0": set_in(f"{DATA}/zarr.json", "chunk_grid", "configuration", "chunk_shape", [0]),
    "chunk 2^50": set_in(f"{DATA}/zarr.json", "chunk_grid", "configuration", "chunk_shape", [1 << 50]),
    "chunk -5": set_in(f"{DATA}/zarr.json", "chunk_grid", "configuration", "chunk_shape", [-5]),
    "irregular grid": set_in(f"{DATA}/zarr.json", "chunk_grid", "name", "irregular"),
    "group of 2^62 rows": set_in(GROUP, "attributes", "shape", [1 << 62, 40]),
    "group of 2^40 features": set_in(GROUP, "attributes", "shape", [300, 1 << 40]),
    "group without shape": edit(GROUP, lambda d: d["attributes"].pop("shape") and None),
    "group of another kind": set_in(GROUP, "attributes", "encoding-type", "csc_matrix"),
    "dtype of names": set_in(f"{DATA}/zarr.json", "data_type", "string"),
    "dtype of bits": set_in(f"{DATA}/zarr.json", "data_type", "r4096"),
    "dtype unknown": set_in(f"{DATA}/zarr.json", "data_type", "object"),
    "dtype with a name of its own": set_in(
        f"{DATA}/zarr.json", "data_type", {"name": "numpy.datetime64", "configuration": {}}
    ),
    "codec unknown": set_in(f"{DATA}/zarr.json", "codecs", [{"name": "pickle"}]),
    "codec of numcodecs": set_in(
        f"{DATA}/zarr.json", "codecs", [{"name": "bytes"}, {"name": "numcodecs.pickle", "configuration": {}}]
    ),
    "no codecs": set_in(f"{DATA}/zarr.json", "codecs", []),
    "a thousand codecs": set_in(f"{DATA}/zarr.json", "codecs", [{"name": "bytes"}] * 1000),
    "storage transformer": set_in(f"{DATA}/zarr.json", "storage_transformers", [{"name": "x"}]),
    "key encoding": set_in(f"{DATA}/zarr.json", "chunk_key_encoding", "configuration", "separator", "/../"),
    "must understand": set_in(f"{DATA}/zarr.json", "evil", {"must_understand": True}),
    "format 4": set_in(f"{DATA}/zarr.json", "zarr_format", 4),
    "node of another kind": set_in(f"{DATA}/zarr.json", "node_type", "group"),
    "fill value nan, chunks gone": lambda root: (
        set_in(f"{DATA}/zarr.json", "fill_value", "NaN")(root),
        shutil.rmtree(root / DATA / "c"),
    )[0],
    "fill value of text": set_in(f"{DATA}/zarr.json", "fill_value", "x" * 100),
    "metadata not JSON": put(f"{DATA}/zarr.json", b"{"),
    "metadata empty": put(f"{DATA}/zarr.json", b""),
    "metadata a list": put(f"{DATA}/zarr.json", b"[]"),
    "metadata not UTF-8": put(f"{DATA}/zarr.json", b"\xff\xfe\x00{"),
    "metadata of 100000 levels": put(f"{DATA}/zarr.json", b"[" * 100_000),
    "metadata of 900 levels": edit(GROUP, deep),
    "attributes of 200 MB": lambda root: put(
        "zarr.json", b'{"zarr_format":3,"node_type":"group","attributes":{"a":"' + b"x" * 200_000_000 + b'"}}'
    )(root),
    "metadata a pipe": pipe(f"{DATA}/zarr.json"),
    "root a pipe": pipe("zarr.json"),
    "chunk a pipe": pipe(f"{DATA}/c/0"),
    "metadata /dev/zero": link(f"{DATA}/zarr.json", "/dev/zero"),
    "chunk /dev/zero": link(f"{DATA}/c/0", "/dev/zero"),
    "chunk a file outside": link(f"{DATA}/c/0", "/etc/passwd"),
    "chunk a link to itself": link(f"{DATA}/c/0", "0"),
    "manifest /dev/zero": link("bigsvm-manifest.json", "/dev/zero"),
    "manifest a pipe": pipe("bigsvm-manifest.json"),
    "manifest names a file outside": edit("bigsvm-manifest.json", lambda d: d["chunks"].update({"../../x": "0" * 32})),
    "manifest names everything twice": edit(
        "bigsvm-manifest.json", lambda d: d.update(chunks={k.upper(): v for k, v in d["chunks"].items()})
    ),
    "zstd bomb": lambda root: codec(DATA, zstd_bomb(), ZSTD)(root),
    "gzip bomb": lambda root: codec(DATA, deflate_bomb(31), GZIP)(root),
    "blosc that says 4 GB": codec(
        DATA, bytes([2, 1, 0, 4]) + (0xFFFFFF00).to_bytes(4, "little") * 2 + (64).to_bytes(4, "little") + bytes(48),
        {"name": "blosc", "configuration": {"typesize": 4, "cname": "lz4", "clevel": 5, "shuffle": "noshuffle",
                                            "blocksize": 0}},
    ),
    "gzip that is short": codec(DATA, gzip.compress(b"abc"), GZIP),
    "row ends run backwards": values(INDPTR, lambda a: np.flip(a)),
    "row ends beyond the data": values(INDPTR, lambda a: a * 1_000_000),
    "row ends negative": values(INDPTR, lambda a: -a),
    "first row end not 0": values(INDPTR, lambda a: np.maximum(a, 3)),
    "index negative": values(INDICES, lambda a: a - 50),
    "index beyond the features": values(INDICES, lambda a: a + 2_000_000_000),
    "index twice": values(INDICES, lambda a: a * 0),
    "values nan": values(DATA, lambda a: a * np.nan),
    "values infinite": values(DATA, lambda a: a / 0.0),
    "values of 1e38": values(DATA, lambda a: a * np.float32(1e38)),
    "codes beyond the classes": values(CODES, lambda a: a + 100),
    "codes negative": values(CODES, lambda a: a - 2),
    "pickles in an object array": lambda root: object_chunks(root, filters=[{"id": "pickle", "protocol": 5}]),
    "pickles behind another codec": lambda root: object_chunks(
        root, filters=[{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]
    ),
    "pickles in a compressor": lambda root: object_chunks(root, filters=None, compressor={"id": "pickle"}),
    "json2 objects": lambda root: object_chunks(root, filters=[{"id": "json2"}]),
    "old: dtype of 10^9 letters": lambda root: old_store(root, dtype="<U1000000000"),
    "old: dtype of fields": lambda root: old_store(root, dtype=[["a", "<f4"], ["b", "|O"]]),
    "old: order Q": lambda root: old_store(root, order="Q"),
    "old: separator": lambda root: old_store(root, dimension_separator="/../"),
    "old: an unknown compressor": lambda root: old_store(root, compressor={"id": "os.system"}),
}  # fmt: skip


def npy(header: str, content: bytes = b"") -> bytes:
    """A .npy with any header."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def object_npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Payload()] * 41, object), allow_pickle=True)
    return file.getvalue()


MODELS: dict[str, Case] = {
    "coef of objects": lambda root: put("coef.npy", object_npy())(root),
    "coef of 2^60": put("coef.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1152921504606846976)}")),
    "coef of 10 GB, short": put("coef.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1342177280)}")),
    "coef negative": put("coef.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, -40)}")),
    "coef header code": put("coef.npy", npy("__import__('os').mkdir('/tmp/bigsvm-payload')")),
    "coef of text": put("coef.npy", npy("{'descr': '<U9', 'fortran_order': False, 'shape': (1, 40)}", bytes(1440))),
    "coef empty": put("coef.npy", b""),
    "coef a pipe": pipe("coef.npy"),
    "coef /dev/zero": link("coef.npy", "/dev/zero"),
    "coef a pickle": lambda root: put("coef.npy", pickle.dumps(Payload()))(root),
    "model.json a pipe": pipe("model.json"),
    "model.json /dev/zero": link("model.json", "/dev/zero"),
    "model.json not JSON": put("model.json", b"{"),
    "model.json of 100000 levels": put("model.json", b"[" * 100_000),
    "format of another": set_in("model.json", "format", "sklearn"),
    "version 99": set_in("model.json", "format_version", 99),
    "version true": set_in("model.json", "format_version", True),
    "features 2^62": set_in("model.json", "n_features", 1 << 62),
    "features negative": set_in("model.json", "n_features", -1),
    "classes a number": set_in("model.json", "classes", 7),
    "classes objects": set_in("model.json", "classes", [{"a": 1}, None]),
    "classes of 10^6": set_in("model.json", "classes", list(range(10**6))),
    "array outside": edit("model.json", lambda d: d["digests"].update({"../../etc/passwd": "0" * 32})),
    "no digests": edit("model.json", lambda d: d.pop("digests") and None),
}


KERNEL_MODELS: dict[str, Case] = {
    "support of objects": lambda root: put("support_data.npy", object_npy())(root),
    "support of 2^60": put(
        "support_data.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,)}")
    ),
    "support of 10 GB, short": put(
        "support_data.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2684354560,)}")
    ),
    "support a pickle": lambda root: put("support_data.npy", pickle.dumps(Payload()))(root),
    "support a pipe": pipe("support_data.npy"),
    "support /dev/zero": link("support_indices.npy", "/dev/zero"),
    "pointers header code": put("support_indptr.npy", npy("__import__('os').mkdir('/tmp/bigsvm-payload')")),
    "pointers run backwards": array_in("support_indptr.npy", lambda a: a[::-1]),
    "pointers beyond the values": array_in("support_indptr.npy", lambda a: a * 1_000_000),
    "indices negative": array_in("support_indices.npy", lambda a: a - 50),
    "indices beyond the features": array_in("support_indices.npy", lambda a: a + 2_000_000_000),
    "rows beyond 2^62": array_in("support_rows.npy", lambda a: a + (1 << 62)),
    "coefficients infinite": array_in("dual_coef.npy", lambda a: a / 0.0),
    "kernel features 2^62": set_in("model.json", "n_features", 1 << 62),
    "kernel of another": set_in("model.json", "problem", "kernel", {"name": "os.system"}),
    "kernel a list": set_in("model.json", "problem", "kernel", [[]]),
    "degree 10^9": set_in("model.json", "problem", "kernel", {"name": "poly", "degree": 10**9}),
    "pairs of 10^6 classes": edit(
        "model.json", lambda d: d.update(classes=list(range(10**6))) or d["problem"].update(multi_class="ovo")
    ),
    "kernel precomputed of 2^62": edit(
        "model.json", lambda d: d.update(n_features=1 << 62) or d["problem"].update(kernel={"name": "precomputed"})
    ),
    "kernel array outside": edit("model.json", lambda d: d["digests"].update({"../../etc/passwd": "0" * 32})),
}


class Bench:
    """A good store and model, and the judge."""

    def __init__(self, work: Path) -> None:
        self.work, self.failed = work, 0
        rng = np.random.default_rng(0)
        X = sp.random(300, 40, 0.3, "csr", np.float32, rng)
        bigsvm.ingest((X, np.where(X @ rng.normal(size=40) > 0, 1, -1)), work / "good", chunk_bytes=4096)
        code, said = self.bigsvm(*self.fit(work / "good", work))
        if code:
            raise SystemExit(said)
        self.right = (work / "m" / "coef.npy").read_bytes()
        some = X[:20].tocsr()
        support = CSR(some.data, some.indices.astype(np.int32), some.indptr.astype(np.int64))
        coef = rng.normal(size=(1, 20))
        KernelModel(Kernel("rbf", 0.1), support, np.arange(20), coef, np.zeros(1), np.array([-1, 1]), 40).save(
            work / "k"
        )

    def fit(self, store: Path, folder: Path) -> list[str]:
        return [
            *("fit", str(store), "--memory", "64MiB", "--quiet", "-o", str(folder / "m")),
            *("--scratch", str(folder / "s")),
        ]

    def bigsvm(self, *arguments: str) -> tuple[int, str]:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            return command_line(list(arguments)), said.getvalue()

    def try_store(self, name: str, case: Case, renewed: bool) -> None:
        """Fit from a bad store; `renewed`: sealed again first."""
        folder = self.work / "try"
        folder.mkdir()
        shutil.copytree(self.work / "good", folder / "bad")
        case(folder / "bad")
        commands = [self.fit(folder / "bad", folder)]
        if renewed:
            manifest = folder / "bad" / "bigsvm-manifest.json"
            if "manifest" not in name:
                manifest.unlink(missing_ok=True)
            commands = [["seal", str(folder / "bad")], *commands]
        self.judge(f"store: {name}{', digests renewed' if renewed else ''}", commands, folder)

    def try_model(self, name: str, case: Case, renewed: bool, good: str = "m") -> None:
        """Predict with a bad model; `renewed`: its digests are those of its files."""
        folder = self.work / "try"
        folder.mkdir()
        shutil.copytree(self.work / good, folder / "bad")
        case(folder / "bad")
        with contextlib.suppress(ValueError, KeyError, TypeError, OSError, RecursionError):
            if renewed and "/dev/zero" not in name and "pipe" not in name:
                document = json.loads((folder / "bad" / "model.json").read_text())
                for array in (folder / "bad").glob("*.npy"):
                    document["digests"][array.name] = file_digest(array)
                (folder / "bad" / "model.json").write_text(json.dumps(document))
        command = ["predict", str(folder / "bad"), str(self.work / "good"), "-o", str(folder / "out.csv"), "--quiet"]
        self.judge(f"model: {name}{', digests renewed' if renewed else ''}", [command], folder)

    def judge(self, where: str, commands: list[list[str]], folder: Path) -> None:
        """Run, then say what was not clean."""
        before, began = memory(), time.monotonic()
        payload = Path(os.environ["BIGSVM_PAYLOAD"])
        wrong, said, code = "", "", -1
        signal.setitimer(signal.ITIMER_PROF, MOST_TIME)
        try:
            for command in commands:
                code, said = self.bigsvm(*command)
                if code:
                    break
        except TimeoutError:
            wrong = f"took more than {MOST_TIME} CPU s"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        lines = [line for line in said.splitlines() if "warning" not in line]
        if code == 0 and (folder / "m").exists() and (folder / "m" / "coef.npy").read_bytes() != self.right:
            wrong = wrong or self.harmless(folder)
        elif code not in REFUSED | {0, 4}:
            wrong = wrong or f"exit {code}"
        elif code not in (0, 4) and len(lines) != 1:
            wrong = wrong or "more than one line"
        if payload.exists():
            wrong, _ = "the payload ran", payload.rmdir()
        if memory() - before > MOST_MEMORY >> 10:
            wrong = wrong or f"{(memory() - before) >> 10} MiB"
        if wrong:
            self.failed += 1
            sys.stdout.write(f"{where}: {wrong} ({time.monotonic() - began:.1f} s)\n{said}\n")
            sys.stdout.flush()
        shutil.rmtree(folder)

    def harmless(self, folder: Path) -> str:
        """Another model than the good store's is right where the numbers are others, and sound."""
        coef = bigsvm.load_model(folder / "m").coef
        return "" if np.all(np.isfinite(coef)) else "a model that is not finite"


def memory() -> int:
    """Most resident memory so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Try every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="every third case")
    options = parser.parse_args()
    found: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and arguments[0] in ("os", "posix", "nt"):
            found.append(f"{arguments[0]}.{arguments[1]}")

    def late(number: int, frame: Any) -> None:
        raise TimeoutError

    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))  # what wants it all gets an error, not the machine
    signal.signal(signal.SIGPROF, late)  # of CPU seconds: others may want the machine too
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BIGSVM_PAYLOAD"] = str(Path(folder) / "payload")
        bench, tried = Bench(Path(folder)), 0
        sys.addaudithook(hook)
        step = 3 if options.smoke else 1
        for kind, cases in (("store", STORES), ("model", MODELS), ("kernel", KERNEL_MODELS)):
            for name, case in list(cases.items())[::step]:
                for renewed in (False, True):
                    if kind == "store":
                        bench.try_store(name, case, renewed)
                    else:
                        bench.try_model(name, case, renewed, "m" if kind == "model" else "k")
                    tried += 1
    sys.stdout.write(f"{tried} cases, {tried - bench.failed} clean; unpickled: {found or 'nothing'}\n")
    if bench.failed or found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
