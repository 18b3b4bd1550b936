"""The recipes of docs/cluster.md: well-formed, with commands that exist; TLS with certificates of our own."""

from __future__ import annotations

import gc
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import yaml
from distributed import Client
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker

import bigsvm
from bigsvm.errors import UsageError
from bigsvm.testing.problems import random_problem

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
OPTIONS = {
    name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for name, command in (("scheduler", dask_scheduler), ("worker", dask_worker))
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def lists_in(tree: Any) -> Iterator[list[str]]:
    if isinstance(tree, dict):
        if "command" in tree and "args" in tree:
            yield [*tree["command"], *tree["args"]]
        for value in tree.values():
            yield from lists_in(value)
    elif isinstance(tree, list):
        if all(isinstance(entry, str) for entry in tree):
            yield tree
        else:
            for value in tree:
                yield from lists_in(value)


def commands() -> Iterator[list[str]]:
    for block in blocks("bash"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if "dask" in words:
                yield [word for word in words[words.index("dask") :] if word != "&"]
    for block in blocks("yaml"):
        yield from (words for words in lists_in(yaml.safe_load(block)) if words[0] == "dask")


def test_every_command_of_dask_takes_its_options() -> None:
    found = list(commands())
    assert len(found) >= 8
    for words in found:
        known = OPTIONS[words[1]]
        assert {word for word in words if word.startswith("--")} <= known, words


def test_scripts_and_documents_are_well_formed() -> None:
    for block in blocks("bash"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)
    for block in blocks("python"):
        compile(block, "docs/cluster.md", "exec")
    kubernetes, compose = map(yaml.safe_load, blocks("yaml"))
    assert kubernetes["kind"] == "DaskCluster"
    assert set(compose["services"]) == {"scheduler", "worker", "fit"}


_SERVED = """
import json, sys
from distributed import LocalCluster, Security
given = json.loads(sys.argv[1])
with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tls", security=Security(**given),
                  dashboard_address=":0", memory_limit=0) as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


def clients() -> list[Client]:
    """All clients that this process holds.

    By type, not isinstance: that asks the object, and a weak proxy of one that is gone answers with an error.
    """
    return [one for one in gc.get_objects() if issubclass(type(one), Client)]


@pytest.mark.cluster
@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")
def test_with_certificates_of_dasks_configuration_and_without(tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "own.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=bigsvm", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    given = {"tls_ca_file": certificate, "require_encryption": True}
    given |= {f"tls_{part}_{what}": path for part in ("client", "scheduler", "worker")
              for what, path in (("cert", certificate), ("key", key))}  # fmt: skip
    X, y = random_problem(60, 3, seed=3)
    options: dict[str, Any] = {"solver": "newton-cg", "C": 1.0, "tol": 1e-3}
    command = [sys.executable, "-c", _SERVED, json.dumps(given)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        address = served.stdout.readline().strip()
        assert address.startswith("tls://")
        gc.collect()
        earlier = clients()  # of other tests
        gc.disable()  # what is left now would be found as garbage in some later step of another client
        try:
            with pytest.raises(UsageError, match=r"TLS expects .*distributed\.comm\.tls"):
                bigsvm.fit((X, y), scheduler=address, **options)
            left = [one.status for one in clients() if not any(one is other for other in earlier)]
        finally:
            gc.enable()
        assert set(left) <= {"closed"}
        tls = {"ca-file": certificate, "client": {"cert": certificate, "key": key}}
        with dask.config.set({f"distributed.comm.tls.{name}": value for name, value in tls.items()}):
            there = bigsvm.fit((X, y), scheduler=address, **options)
        served.communicate()
    here = bigsvm.fit((X, y), threads=1, **options)
    np.testing.assert_array_equal(there.model.coef, here.model.coef)
