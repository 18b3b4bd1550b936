#!/usr/bin/env python3
"""Rows in a bucket, behind a proxy that does what networks and stores do: the right model, or a refusal by name.

    faults   30 % of all answers are 500, 503, 429, resets, cut short, stalled, stray 403 and 404, or have a byte
             flipped, in bursts of two: the model of the same rows at home, and the time beside that without faults
    dead     one key answers 503, or half of itself and then nothing, for ever: refused by its name within 180 s
    wrong    one key has wrong bytes whenever it is asked for: refused by its name, and no file here has them
    kills    `bigsvm fit` is killed while it copies, again and again: the model of the same rows at home in the end

The bucket is moto's where that is installed (pip install 'moto[server]'), else a web server's folder.  Whatever is
written on the way is searched for the credentials in the end.

    scripts/stress/object_storage.py --trials 20
    scripts/stress/object_storage.py --smoke
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from objects.proxy import PASSING, Proxy, s3_server, web_server
from objects.standing_clock import deadlines_over_when

import bigsvm
from bigsvm.errors import BigSVMError, DataError, ReadFailed

SECRET = "planted-0b9d"
OPTIONS = {"loss": "hinge", "memory": "64MiB", "threads": 1}


class Trial:
    """A store at home, its model, and the same store elsewhere.

    is_s3 : it is in a bucket, else on a web server
    """

    def __init__(self, work: Path, rows: int, deadline: float) -> None:
        self.work, self.home, self.deadline = work, work / "served" / "rows.zarr", deadline
        rng = np.random.default_rng(0)
        X = sp.random(rows, 200, 0.1, format="csr", dtype=np.float32, random_state=0)
        y = np.where(X @ rng.normal(size=200) + 0.3 * rng.normal(size=rows) > 0, 1, -1)
        self.home.parent.mkdir()
        bigsvm.ingest((X, y), self.home, chunk_bytes=32 << 10)
        self.keys = [str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file()]
        self.chunks = sorted(key for key in self.keys if key.startswith("X/data/c/"))
        self.model = self.fit(str(self.home), "home")
        self.failed: list[str] = []
        self.number = 0

    def fit(self, source: str, name: str, **storage: Any) -> dict[str, bytes]:
        """The files of a model."""
        bigsvm.fit(source, storage_options=storage, **OPTIONS).save_model(self.work / name)
        return {path.name: path.read_bytes() for path in (self.work / name).iterdir()}

    def new_scratch(self) -> str:
        """A name for what comes next, with an empty scratch folder."""
        self.number += 1
        os.environ["BIGSVM_SCRATCH"] = str(self.work / f"scratch-{self.number}")
        return f"trial-{self.number}"

    def copied(self) -> set[str]:
        """Keys of which there is a copy in the scratch folder."""
        folders = Path(os.environ["BIGSVM_SCRATCH"]).rglob("rows.zarr")
        files = (path.relative_to(folder) for folder in folders for path in folder.rglob("*") if path.is_file())
        return {str(path) for path in files}

    def check(self, right: bool, what: str) -> None:
        """Count a failure."""
        if not right:
            self.failed.append(what)
            print(f"FAILED: {what}", flush=True)

    @contextmanager
    def before(self, server: str, **faults: Any) -> Iterator[tuple[Proxy, str]]:
        """A proxy, and the name of the store behind it."""
        with Proxy(server, **faults).running() as proxy:
            os.environ["AWS_ENDPOINT_URL"] = proxy.url
            yield proxy, "s3://rows/rows.zarr" if self.is_s3 else f"{proxy.url}/rows.zarr"

    is_s3 = True

    def upload(self, server: str) -> None:
        """Put the store into the bucket."""
        import obstore

        urllib.request.urlopen(urllib.request.Request(f"{server}/rows", method="PUT")).close()
        store = obstore.store.S3Store("rows", endpoint=server, client_options={"allow_http": True})
        for key in self.keys:
            obstore.put(store, f"rows.zarr/{key}", (self.home / key).read_bytes())


def faults(trial: Trial, server: str, trials: int) -> str:
    """The model under faults, and the time beside that without."""
    ratios = []
    for number in range(trials):
        seconds = []
        for rate in (0.0, 0.3):
            name = trial.new_scratch()
            with trial.before(server, faults=PASSING, rate=rate, seed=number) as (_, source):
                began = time.monotonic()
                found = trial.fit(source, name, timeout=2)
                seconds.append(time.monotonic() - began)
                trial.check(found == trial.model, f"faults {number}: another model")
        ratios.append(seconds[1] / seconds[0])
    right = trials - sum("faults" in what for what in trial.failed)
    return f"{right} of {trials} right, {np.median(ratios):.1f} times the time (median), {max(ratios):.1f} at most"


def refused(
    trial: Trial, server: str, how: str, key: str, error: type[BigSVMError], at_once: bool = False, **storage: Any
) -> float:
    """Seconds until a fit is refused by the name of a key.

    at_once : the deadline is over as soon as all other chunks are here, and no earlier
    """
    name = trial.new_scratch()
    with trial.before(server) as (proxy, source):
        getattr(proxy, how).add(key)
        others, here = {path for path in trial.keys if "/c/" in path and path != key}, trial.copied
        began = time.monotonic()
        try:
            with deadlines_over_when(lambda: others <= here()) if at_once else nullcontext():
                trial.fit(source, name, **storage)
            trial.check(False, f"{how} {key}: a model came of it")
        except BigSVMError as found:
            trial.check(isinstance(found, error) and key in found.where, f"{how} {key}: {found!r}")
        seconds = time.monotonic() - began
    trial.check(key not in trial.copied(), f"{how} {key}: there is a copy of it")
    trial.check(not (trial.work / name).exists(), f"{how} {key}: there is a model")
    return seconds


def kills(trial: Trial, server: str, trials: int) -> str:
    """`bigsvm fit`, killed up to three times while it copies."""
    rng, landed = random.Random(0), 0
    for number in range(trials):
        name = trial.new_scratch()
        with trial.before(server) as (proxy, source):
            command = [sys.executable, "-m", "bigsvm", "fit", source, "-o", str(trial.work / name), "--quiet"]
            command += ["--loss", "hinge", "--memory", "64MiB", "--threads", "1", "--overwrite"]
            for _ in range(rng.randint(1, 3)):
                left = rng.randint(1, len(trial.keys))
                with subprocess.Popen(command) as process:

                    def kill(_: str, process: Any = process) -> None:
                        nonlocal left
                        left -= 1
                        if left == 0:
                            process.kill()

                    proxy.on_get = kill
                    landed += process.wait() == -9
                proxy.on_get = lambda path: None
            done = subprocess.run(command, check=False)
            trial.check(done.returncode == 0, f"kill {number}: exit {done.returncode}")
        found = {path.name: path.read_bytes() for path in (trial.work / name).iterdir()} if done.returncode == 0 else {}
        trial.check(found == trial.model, f"kill {number}: another model")
    right = trials - len({what.split(":")[0] for what in trial.failed if what.startswith("kill")})
    return f"{right} of {trials} right, {landed} kills landed"


def main() -> int:
    """Run the trials; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--smoke", action="store_true", help="one of each, on few rows, no deadline waited for")
    arguments = parser.parse_args()
    trials, rows, deadline = arguments.trials, arguments.rows, 180.0
    if arguments.smoke:
        trials, rows, deadline = 1, 2_000, 1.0
    os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1")
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), rows, deadline)
        try:
            server = s3_server()
            url = server.__enter__()
        except ImportError:
            trial.is_s3, server = False, web_server(str(trial.home.parent))
            url = server.__enter__()
        try:
            if trial.is_s3:
                trial.upload(url)
            print(f"{'moto' if trial.is_s3 else 'a web server'}, {len(trial.keys)} objects", flush=True)
            print(f"faults: {faults(trial, url, trials)}", flush=True)
            for how in ("dead", "silent"):
                seconds = refused(
                    trial, url, how, trial.chunks[1], ReadFailed, at_once=arguments.smoke, deadline=deadline,
                    timeout=min(deadline / 4, 30),
                )  # fmt: skip
                late = seconds >= deadline + 20 and not arguments.smoke
                trial.check(not late, f"{how}: refused after {seconds:.0f} s")
                print(f"{how}: refused by name after {seconds:.1f} s", flush=True)
            for key in trial.chunks[:trials]:
                refused(trial, url, "wrong", key, DataError)
            print(f"wrong: {min(trials, len(trial.chunks))} keys refused by name", flush=True)
            print(f"kills: {kills(trial, url, trials)}", flush=True)
        finally:
            server.__exit__(None, None, None)
        written = [path for path in trial.work.rglob("*") if path.is_file()]
        told = [str(path) for path in written if SECRET.encode() in path.read_bytes()]
        trial.check(not told, f"credentials are in {told}")
        print(f"credentials: in none of {len(written)} files", flush=True)
    return 1 if trial.failed else 0


if __name__ == "__main__":
    sys.exit(main())
