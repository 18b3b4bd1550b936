"""What was asked for and counts for nothing is said, once, and by name; what counts is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.cli.main import run
from bigsvm.config import OPTIONS, FitConfig
from bigsvm.problem.kernel import KERNELS, PARAMETERS
from bigsvm.run.start.unused_options import unused_options

OTHER: dict[str, Any] = {
    "nu": 0.3, "epsilon": 0.3, "gamma": 0.5, "degree": 2, "coef0": 1.5, "assume_psd": True, "wss": "3",
    "working_set": 8, "shrinking": False, "cache_memory": "16MiB", "shards": 2, "rounds_per_pass": 2,
    "sum_seconds": 0.5, "bias_scale": 2.0, "calibrate_share": 0.4, "workers": 2, "worker_scratch": "/tmp",
}  # fmt: skip
"""Of each option that some fits have no use for a value that is not the default."""

FITS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "linear, newton-ws": ({"solver": "newton-ws"}, {"bias_scale"}),
    "linear, dcd": ({"solver": "dcd", "loss": "hinge"}, {"bias_scale"}),
    "linear, dcd, shards": ({"solver": "dcd", "shards": 2}, {"bias_scale", "shards", "rounds_per_pass", "sum_seconds"}),
    "without a bias": ({"solver": "dcd", "bias": "none"}, set()),
    "with probabilities": ({"solver": "dcd", "calibrate": "sigmoid"}, {"bias_scale", "calibrate_share"}),
    "on workers": ({"solver": "dcd", "scheduler": "processes"}, {"bias_scale", "workers", "worker_scratch"}),
    "values": ({"solver": "dcd", "loss": "epsilon_insensitive"}, {"bias_scale", "epsilon"}),
    **{
        f"{kernel}, smo": (
            {"solver": "smo", "kernel": kernel},
            {"wss", "working_set", "shrinking", "cache_memory", *PARAMETERS[kernel]}
            | ({"assume_psd"} if kernel not in ("linear", "rbf") else set()),
        )
        for kernel in KERNELS
    },
    "nu": (
        {"solver": "smo", "kernel": "rbf", "loss": "nu_svc"},
        {"nu", "gamma", "wss", "working_set", "shrinking", "cache_memory"},
    ),
    "textbook": ({"solver": "simplified-smo", "kernel": "rbf"}, {"gamma", "cache_memory"}),
}


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("fit", FITS)
def test_an_option_that_counts_for_nothing_is_said(fit: str, name: str) -> None:
    options, counting = FITS[fit]
    config = FitConfig.of(**options)
    assert unused_options(config, config.solver, config.shards or 1) == []
    if name == "shards" and config.shards == OTHER[name]:
        return
    asked = FitConfig.of(**{**options, name: OTHER[name]})
    said = unused_options(asked, asked.solver, asked.shards or 1)
    of_shards = name == "shards" and asked.solver in OPTIONS["shards"].solvers
    if name in counting or of_shards:
        assert said == []
    else:
        flag = "--" + OPTIONS[name].name.replace("_", "-")
        flag = {"--lam": "--lambda", "--no-shrinking": "--no-shrinking"}.get(flag, flag)
        assert [message.split(" has no effect with ")[0] for message in said] == [flag]


@pytest.mark.parametrize("options", [{"gamma": 0.5}, {"degree": 2}, {"wss": "3"}, {"bias": "none", "bias_scale": 5.0}])
def test_a_fit_warns_of_it(options: dict[str, Any]) -> None:
    X = np.random.default_rng(0).standard_normal((60, 4))
    warned = [said for said in bigsvm.fit((X, X[:, 0] > 0), **options).warnings if "has no effect with" in said]
    assert len(warned) == 1
    assert bigsvm.fit((X, X[:, 0] > 0), kernel="rbf", gamma=0.5, wss="3").warnings == []


def test_who_comes_from_libsvm_is_told_of_the_kernel(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.svm").write_text("1 1:1\n-1 1:-1\n" * 20)
    bigsvm.ingest(tmp_path / "rows.svm", tmp_path / "rows.zarr")
    command = ["fit", str(tmp_path / "rows.zarr"), "--gamma", "0.5", "-o", str(tmp_path / "m")]
    warning = "--gamma has no effect with the kernel linear; it belongs to --kernel rbf, poly or sigmoid"
    assert run(command) == 0
    assert warning in capsys.readouterr().err
