#!/usr/bin/env python3
"""Mutated input against a strict slow reader: text, metadata of stores, models.

    text        lines of svmlight text.  The compiled parser and the specification in Python (`parse_line_strict`)
                must give the same rows, bit for bit, or the same refusal.  The corpus is grown by coverage: in a
                process where kernels run as Python, lines that reach new branches of the parser are kept.
    metadata    JSON documents of a store, sealed again: refused, or rows that are sound
    model       model.json and arrays of linear and kernel models, digests made again: refused, or a model that is
                finite and predicts

Anything else than a refusal by bigsvm's own errors is a find, printed with the input; so is another content.

    scripts/stress/fuzz.py --seconds 600 --seed 1
    scripts/stress/fuzz.py --smoke
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import bigsvm
from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import BigSVMError, DataError
from bigsvm.files.atomic import file_digest
from bigsvm.model.decide import models_of
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.model_files import document_text
from bigsvm.problem.kernel import Kernel
from bigsvm.store.sealing.seal import seal
from bigsvm.store.text.svmlight import Row, parse_line_strict, read_chunks
from bigsvm.store.text.text_files import PADDING, Piece, _Pool

SEEDS = [
    b"1 1:0.5 2:1e-3 # note", b"-1 qid:3 7:-0.25", b"+1", b"0.5 1:1 2:2 3:3", b"# only", b"", b"  1\t2:3 ",
    b"1 1:123456789012345678901234567890", b"2 1:1e308 2:1e-320", b"1 9223372036854775807:1", b"1 2147483648:2\r",
    b"1 1:.5 2:5. 3:+7", b"1 1:0x1p3", b"nan 1:1", b"1 1:inf", b"1 3:1 2:1", b"1 1:1 1:2", b"1 0:1", b"1 -1:1",
    b"1 1: 2",
]  # fmt: skip
TOKENS = [
    b" ", b"\t", b":", b"#", b"qid:", b"e", b"E", b".", b"-", b"+", b"0", b"1:", b"nan", b"inf", b"\r", b"\0", b"\xff",
    b"9" * 20, b"0" * 30, b"1e309", b"1e-400", b"2147483647:1", b"9223372036854775808:1", b"_", b"0x", b",",
    b"\xef\xbb\xbf",
]  # fmt: skip
BATCH = 512


def mutate(line: bytes, corpus: list[bytes], rng: random.Random) -> bytes:
    """A few changes to a line; never a newline, which would make two."""
    out = bytearray(line)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at, kind = rng.randrange(len(out) + 1), rng.randrange(7)
        if kind == 0 and out:
            out[min(at, len(out) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 2:
            del out[at : at + rng.randrange(1, 5)]
        elif kind == 3:
            out[at:at] = str(rng.choice((rng.randrange(100), rng.getrandbits(64), rng.random()))).encode()
        elif kind == 4:
            other = rng.choice(corpus)
            out[at:] = other[rng.randrange(len(other) + 1) :]
        elif kind == 5:
            stop = at + rng.randrange(1, 9)
            out[at:at] = out[at:stop]
        else:
            out[at : at + 1] = bytes([rng.choice(b"0123456789.:eE+- #\tq")])
    return bytes(out).replace(b"\n", b" ")[:2000]


def piece_of(lines: list[bytes]) -> Piece:
    """The lines as the parser gets them."""
    content = b"\n".join(lines) + b"\n"
    buffer = np.zeros(len(content) + 1 + PADDING, np.uint8)
    buffer[: len(content)] = np.frombuffer(content, np.uint8)
    return Piece(_Pool(len(content)), "fuzz", buffer, len(content), 1, 0)


def strict(line: bytes, **options: Any) -> Row | DataError | None:
    """What the specification says of a line."""
    try:
        return parse_line_strict(line, "fuzz:1", **options)
    except DataError as error:
        return error


def compare(lines: list[bytes], **options: Any) -> None:
    """Parse and hold against the specification.  Raises AssertionError with the line."""
    good, rows = [], []
    for line in lines:
        said = strict(line, **options)
        if isinstance(said, DataError):
            try:
                list(read_chunks([piece_of([line])], **options))
            except DataError as error:
                heard = str(error)
            else:
                heard = "accepted"
            if heard != str(said):
                raise AssertionError((line, heard, str(said)))
            continue
        if said is not None and abs(whole := whole_label(line, said.label)) > 2**53:
            compare_rounded(line, whole, **options)
            continue
        good.append(line)
        if said is not None:
            rows.append(said)
    if not good:
        return
    chunks = list(read_chunks([piece_of(good)], **options))
    labels = np.concatenate([c.labels for c in chunks]) if chunks else np.empty(0)
    values = np.concatenate([c.X.data for c in chunks]) if chunks else np.empty(0)
    indices = np.concatenate([c.X.indices for c in chunks]).tolist() if chunks else []
    same = (
        labels.tobytes() == np.array([row.label for row in rows], np.float64).tobytes()
        and values.tobytes() == np.array([v for row in rows for v in row.values], values.dtype).tobytes()
        and indices == [j for row in rows for j in row.indices]
    )
    if not same:
        for line in good if len(good) > 1 else []:
            compare([line], **options)
        raise AssertionError((good[:3], "other rows than the specification's"))


def whole_label(line: bytes, label: float) -> int | float:
    """A label as it is written where it is a whole number; else as float64 has it."""
    field = line.removeprefix(b"\xef\xbb\xbf").partition(b"#")[0].split(None, 1)[0]
    return int(field) if field.lstrip(b"+-").isdigit() else label


def compare_rounded(line: bytes, label: int | float, **options: Any) -> None:
    """A label that float64 would round is kept to the last digit, or refused.  Raises AssertionError."""
    try:
        chunks = list(read_chunks([piece_of([line])], **options))
    except DataError as error:
        if "cannot hold" not in str(error):
            raise AssertionError((line, str(error))) from error
        return
    if [found for chunk in chunks for found in chunk.labels.tolist()] != [label]:
        raise AssertionError((line, "another label than is written"))


def options_of(rng: random.Random) -> dict[str, Any]:
    return {
        "dtype": np.dtype(rng.choice(("float32", "float64"))),
        "zero_based": rng.random() < 0.3,
        **({"n_features": rng.choice((5, 1 << 31, 1 << 40))} if rng.random() < 0.3 else {}),
    }


def intrinsics_in_python(*modules: Any) -> None:
    """What the parser does to addresses and bits, for kernels that run as Python."""
    memory = b""

    def address_of(buffer: np.ndarray) -> np.uint64:
        nonlocal memory
        memory = buffer.tobytes() + bytes(64)
        return np.uint64(0)

    functions = {
        "address_of": address_of,
        "byte_at": lambda p: np.uint8(memory[int(p)]),
        "eight_at": lambda p: np.uint64(int.from_bytes(memory[int(p) : int(p) + 8], "little")),
        "_high_word": lambda a, b: np.uint64((int(a) * int(b)) >> 64),
        "_trailing_zeros": lambda x: np.uint64((int(x) & -int(x)).bit_length() - 1 if x else 64),
        "_as_double": lambda x: np.uint64(x).view(np.float64),
        "_leading_zeros": lambda x: np.uint64(64 - int(x).bit_length()),
    }
    for module in modules:
        for name, function in functions.items():
            if hasattr(module, name):
                setattr(module, name, function)


class Limit(NamedTuple):
    """How long to go on: `most` turns, or where that is 0 as many as `seconds` give."""

    seconds: float
    most: int

    def turns(self) -> Iterator[int]:
        until = time.monotonic() + self.seconds
        for turn in itertools.count():
            if turn >= self.most if self.most else time.monotonic() >= until:
                return
            yield turn


def grow(limit: Limit, seed: int) -> list[bytes]:
    """A corpus that reaches as many branches as it can; run where kernels are Python (NUMBA_DISABLE_JIT)."""
    from bigsvm.compiled.text import decimal, numbers
    from bigsvm.compiled.text import svmlight as kernel
    from bigsvm.store.text import svmlight
    from bigsvm.store.text import text_files as text

    intrinsics_in_python(decimal, numbers, kernel)
    files = {kernel.__file__, numbers.__file__, decimal.__file__, svmlight.__file__, text.__file__}
    rng, seen, corpus = random.Random(seed), set[tuple[str, int, int]](), list(SEEDS)
    reached: set[tuple[str, int, int]] = set()
    previous, steps = 0, [0]

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal previous
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            steps[0] += 1
            if steps[0] > 100_000:
                raise TimeoutError("another word size, another loop")
            reached.add((frame.f_code.co_filename, previous, frame.f_lineno))
            previous = frame.f_lineno
        return trace

    for line in itertools.chain(SEEDS, (mutate(rng.choice(corpus), corpus, rng) for _ in limit.turns())):
        reached.clear()
        steps[0] = 0
        sys.settrace(trace)
        try:
            # Only where it goes counts here: words of Python and of the machine do not overflow alike.
            with contextlib.suppress(Exception), np.errstate(all="ignore"):
                compare([line], **options_of(rng))
        finally:
            sys.settrace(None)
        if reached - seen:
            seen |= reached
            corpus.append(line)
    sys.stderr.write(f"corpus: {len(corpus)} lines reach {len(seen)} branches\n")
    return corpus


def fuzz_text(limit: Limit, seed: int, work: Path) -> str:
    """Grow a corpus, then mutate it at speed."""
    file = work / "corpus.json"
    third = ["--turns", str(limit.most)] if limit.most else ["--seconds", str(max(limit.seconds / 3, 2))]
    guided = [sys.executable, __file__, "--grow", str(file), *third, "--seed", str(seed)]
    done = subprocess.run(
        guided, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    corpus = [bytes.fromhex(line) for line in json.loads(file.read_text())]
    rng, tried = random.Random(seed + 1), 0
    compare([b"1 1:1"], dtype=np.dtype(np.float32))
    compare([b"1 1:1"], dtype=np.dtype(np.float64))
    began = time.monotonic()
    for _ in limit.turns():
        compare([mutate(rng.choice(corpus), corpus, rng) for _ in range(BATCH)], **options_of(rng))
        tried += BATCH
    rate = tried / (time.monotonic() - began)
    return f"text: {done.stderr.strip()}; {tried} mutated lines, {rate:.0f} a second, 0 differences"


JUNK: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**70, 1.5, 1e308, "", "x", "\0", "../..", "é", [], {}, [[]], [0], [-1],
    [2**62], {"name": "x"}, "float32", "NaN", "csr_matrix", "array",
]  # fmt: skip


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value in a document."""
    if isinstance(document, dict | list):
        for key in list(document) if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from places(document[key])


def damage(document: Any, rng: random.Random) -> Any:
    """Change one or two values, or take them out, or put one more in."""
    for _ in range(rng.choice((1, 1, 2))):
        found = list(places(document))
        if not found:
            return copy.deepcopy(rng.choice(JUNK))
        container, key = rng.choice(found)
        kind = rng.randrange(4)
        if kind == 0 and isinstance(container, dict):
            del container[key]
        elif kind == 1 and isinstance(container, list):
            container.insert(key, copy.deepcopy(rng.choice(JUNK)))
        elif kind == 2 and isinstance(container[key], int | float) and not isinstance(container[key], bool):
            container[key] = container[key] + rng.choice((-1, 1, 7, -container[key]))
        else:
            container[key] = copy.deepcopy(rng.choice(JUNK))
    return document


def fuzz_metadata(limit: Limit, seed: int, work: Path) -> str:
    """Change a document of a store and seal it again."""
    rng = random.Random(seed)
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    bigsvm.ingest((X, np.arange(50) % 2), work / "good", chunk_bytes=256)
    documents = [p.relative_to(work / "good") for p in (work / "good").rglob("zarr.json")]
    tried = refused = 0
    for _ in limit.turns():
        shutil.rmtree(work / "bad", ignore_errors=True)
        shutil.copytree(work / "good", work / "bad")
        path = work / "bad" / rng.choice(documents)
        document = damage(json.loads(path.read_text()), rng)
        path.write_text(json.dumps(document))
        (work / "bad" / "bigsvm-manifest.json").unlink()
        tried += 1
        try:
            seal(work / "bad")
            store = bigsvm.open_store(work / "bad")
            for ref in store.refs(16):
                block = store.read(ref)
                assert np.isfinite(block.X.data).all(), (str(path), document)
        except BigSVMError:
            refused += 1
        except Exception as error:
            raise SystemExit(f"{path}: {type(error).__name__}: {error}\n{json.dumps(document)}") from error
    return f"metadata: {tried} mutated documents, {refused} refused, the rest sound"


def made_again(document: Any) -> str:
    """model.json with its digest, where it is still a document that can have one."""
    try:
        return document_text(document)
    except (TypeError, ValueError):
        return json.dumps(document)


def fuzz_model(limit: Limit, seed: int, work: Path) -> str:
    """Change model.json, or the bytes of an array, and make the digests again."""
    rng = random.Random(seed)
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    made = good_models(X, work)
    tried = refused = 0
    for _ in limit.turns():
        shutil.rmtree(work / "copy", ignore_errors=True)
        shutil.copytree(rng.choice(made), work / "copy")
        document: Any = json.loads((work / "copy" / "model.json").read_text())
        if rng.random() < 0.5:
            path = work / "copy" / rng.choice(sorted(document["digests"]))
            content = bytearray(path.read_bytes())
            for _ in range(rng.randrange(1, 4)):
                content[rng.randrange(len(content))] = rng.randrange(256)
            path.write_bytes(content[: rng.randrange(len(content))] if rng.random() < 0.2 else content)
            document["digests"][path.name] = file_digest(path)
        else:
            document = damage(document, rng)
        (work / "copy" / "model.json").write_text(made_again(document))
        tried += 1
        try:
            model = bigsvm.load_model(work / "copy")
            assert np.isfinite(model.intercept).all()
            if isinstance(model, KernelModel):
                parts = model.support if isinstance(model.support, CSR) else [model.support]
                assert all(part is None or np.isfinite(part).all() for part in (*parts, model.dual_coef))
                nothing = CSR(np.empty(0), np.empty(0, np.int32), np.zeros(4, np.int64))
                model.predict(X[:3] if model.support is not None else nothing)
            else:
                assert np.isfinite(model.coef).all()
        except BigSVMError:
            refused += 1
        except Exception as error:
            raise SystemExit(f"{type(error).__name__}: {error}\n{json.dumps(document)}") from error
    return f"model: {tried} mutated models, {refused} refused, the rest finite"


def good_models(X: np.ndarray, work: Path) -> list[Path]:
    """A linear model of a fit, and kernel models of several kinds, of the rows X."""
    bigsvm.fit((X, np.arange(50) % 2), memory="64MiB", max_passes=5).save_model(work / "linear")
    rows = np.arange(0, 50, 5)
    sparse = sp.csr_array(X[rows])
    csr = CSR(sparse.data, sparse.indices.astype(np.int32), sparse.indptr.astype(np.int64))
    for name, kernel, support, classes in (
        ("dense", Kernel("rbf", 0.5), X[rows], np.arange(2)),
        ("csr", Kernel("poly", 0.5, 2), csr, np.array(["no", "yes"])),
        ("precomputed", Kernel("precomputed"), None, np.empty(0)),
        ("pairs", Kernel("rbf", 0.5), X[rows], np.arange(4)),
    ):
        positive, negative = models_of(len(classes), name == "pairs")
        n_models, width = len(positive), 50 if support is None else 4
        coef = np.ones((n_models, len(rows)))
        model = KernelModel(kernel, support, rows, coef, np.ones(n_models), classes, width, positive, negative)
        model.save(work / name, np.ones((n_models, 50)))
    return [work / name for name in ("linear", "dense", "csr", "precomputed", "pairs")]


def main() -> None:
    """Fuzz the three of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each of the three")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grow", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=0, help="so many each, however long they take")
    parser.add_argument("--smoke", action="store_true", help="twenty turns each")
    options = parser.parse_args()
    limit = Limit(options.seconds, 20 if options.smoke else options.turns)
    if options.grow:
        options.grow.write_text(json.dumps([line.hex() for line in grow(limit, options.seed)]))
        return
    resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))  # small inputs that want more are a find
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        for fuzz in (fuzz_text, fuzz_metadata, fuzz_model):
            sys.stdout.write(fuzz(limit, options.seed, Path(folder)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
