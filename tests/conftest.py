"""Shared fixtures.  Real data sets are used where they lie beside the checkout, else the test skips."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.util
import itertools
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from bigsvm import machine
from bigsvm.compiled.cache.options import compare_quickly
from bigsvm.compiled.cache.places import cache_folder
from bigsvm.observe import lines
from bigsvm.run.execute import pass_progress
from bigsvm.solvers.dcd.active_row_buffer import whole_row_buffer
from bigsvm.store.formats.tables import looked_at_first

# numba compiles on the first call, which hypothesis would take for a slow test; and a busy machine for slow data.
settings.register_profile("bigsvm", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bigsvm")

# Nearly a third of what tests compile they compile in pytest's own processes.
compare_quickly()

# Some hundred programs are started by tests.  Where Python may keep no bytecode, each of them would compile our sources
# anew, which is a third of what a small fit takes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # nor does one of pytest's own processes compile what another one did

# Workers of dask look at themselves a hundred times a second, at work and at rest.
os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "False"

_ROOT = Path(__file__).parents[1]
_DATA = Path(os.environ.get("BIGSVM_TEST_DATA", _ROOT.parent / "shared" / "data"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests go to one worker: what they share is made once, and their kernels are compiled once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log) if config.getvalue("dist") == "load" else None


_WORKERS_IMPORT = ["distributed.nanny", "bigsvm.cli.main", "bigsvm.run.api", "tests.numba_tables"]
_CLUSTER = f"""
import logging, sys
import dask
from distributed import LocalCluster
from distributed.utils import get_mp_context
dask.config.set({{"distributed.worker.multiprocessing-method": "forkserver"}})
get_mp_context().set_forkserver_preload({_WORKERS_IMPORT})
options = {{"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}}
with LocalCluster(processes=True, silence_logs=logging.ERROR, **options) as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Workers collect one after another: the first one compiles all modules, which the others then only load."""
    with open(__file__) as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare the garbage collector ten thousand collected tests, which stay, and let it look less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, *gc.get_threshold()[1:])


# A program of ours returns memory to the system that it has freed, for the sake of its budget: the system must clear it
# anew for the next array, and a look through the holes that thousands of tests have left in the heap takes 30 ms.
_returning, _keeping = machine.trim_heap.__code__, (lambda: None).__code__


def _keep_freed(nbytes: int, trim: CodeType) -> None:
    """The C library keeps freed arrays of up to `nbytes`, and who asks to trim the heap gets `trim`."""
    machine.return_freed_memory()  # once a process: what it sets does not come after what is set here
    with contextlib.suppress(OSError, AttributeError):  # another C library: its ways are its own
        for parameter in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            ctypes.CDLL(None).mallopt(parameter, nbytes)
    machine.trim_heap.__code__ = trim  # of the function, so also for those who have imported it


_keep_freed(32 << 20, _keeping)


# zarr hands each look at a file and each chunk to decode to a thread of its pool, and waits for it.  With files of some
# hundred bytes that is a quarter of what tests/store/test_manifest.py takes.  Nothing that zarr calls there is ours.
_WITH_POOL = ["storage._local", *(f"codecs.{name}" for name in ("blosc", "gzip", "zstd", "_v2", "numcodecs._codecs"))]


async def _on_this_thread(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


for _name in _WITH_POOL:
    with contextlib.suppress(ImportError):  # another zarr: it may do as it likes
        _module = importlib.import_module(f"zarr.{_name}")
        vars(_module)["asyncio"] = SimpleNamespace(**{**vars(asyncio), "to_thread": _on_this_thread})


@pytest.fixture
def freed_is_returned() -> Iterator[None]:
    """Freed memory goes back to the system at once, as in a program: for tests of how much of it this process holds."""
    _keep_freed(1 << 20, _returning)
    machine.trim_heap()
    yield
    _keep_freed(32 << 20, _keeping)


@pytest.fixture
def started_and_alive(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Call it for the names of threads that live and that this test has started, or that these have.

    Not all that are new: threads of earlier tests, such as those of dask and zarr, begin and end as they like.
    """
    ours, start = [threading.current_thread()], threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        if threading.current_thread() in ours:
            ours.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    return lambda: [thread.name for thread in ours[1:] if thread.is_alive()]


@pytest.fixture
def no_small_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit begins without small ones, which load what is compiled: for who watches a method of a solver.

    The first fit of its kind in a process has them, so what is seen would depend on the tests before.
    """
    monkeypatch.setattr("bigsvm.run.fit.fit.precompile", lambda *given: None)


@pytest.fixture(scope="module")
def few_objects() -> None:
    """Who asks for garbage, or for all objects, asks of those that are made from now on.

    Those of thousands of tests before take half a second each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a running cluster of two worker processes: starting one costs more than a small fit on it."""
    pipe = subprocess.PIPE
    program = [sys.executable, "-c", _CLUSTER]
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, cwd=_ROOT) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


@pytest.fixture
def forked_workers() -> Iterator[None]:
    """Worker processes are forked from one that has imported what they need, which takes longer than a small fit.

    That process has called nothing, so a worker is as new as one that is started.  Dask starts each by itself else, as
    in the tests of fits that start their workers.
    """
    import dask
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["pytest", *_WORKERS_IMPORT])
        with contextlib.chdir(_ROOT):  # it imports what lies here
            forkserver.ensure_running()
        yield


@pytest.fixture(scope="session")
def real_data() -> ModuleType:
    """The module that loads the real data sets; skips the test where they are not at hand."""
    path = _DATA / "load.py"
    if not path.exists():
        pytest.skip("the real data sets are not here (set BIGSVM_TEST_DATA)")
    spec = importlib.util.spec_from_file_location("bigsvm_real_data", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_made = itertools.count()


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own: pytest's fixture looks through the folders of all tests before, for a number."""
    folder = tmp_path_factory.getbasetemp() / f"{re.sub(r'[^a-zA-Z0-9]+', '_', request.node.name)[:30]}-{next(_made)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session")
def _manifests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of manifests in a cache of this process's own, where compiled functions are a link to those of all.

    Each process looks through the folder for what dead processes left, so thousands of manifests of other tests would
    cost some CPU.
    """
    compiled, cache = cache_folder(), tmp_path_factory.getbasetemp() / "cache"
    (cache / "bigsvm").mkdir(parents=True)
    (cache / "bigsvm" / compiled.name).symlink_to(compiled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIGSVM_CACHE", str(cache))
        yield cache / "bigsvm" / "manifests"


def _in_no_child(paths: Any, look: Any, cpu_s: Any) -> tuple[int, int, str]:
    """All files are sound."""
    return len(paths), 0, ""


@pytest.fixture(autouse=True)
def _as_in_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _manifests: Path) -> Iterator[None]:
    """What every test begins and ends with.  One fixture: pytest takes longer for each than these lines do.

    * Nobody pulls the plug here: nothing waits until the disk has it.
    * Parquet and HDF5 files are opened without a look by a child: to fork a process with so much memory takes long.
      `tests/store/test_looked_at_first.py` has the children.
    * No line for work that happens to take long on a busy machine: tests compare what a command says.
    * scikit-learn's references draw from NumPy's global generator: each test has the same draws in every run.
    * Scratch and manifests of each test are its own; compiled functions are shared, for speed.
    * What a test makes of a signal ends with the test: programs that later tests start would inherit it.  Dagster makes
      SIGTERM do what SIGINT does: nothing, where a shell started the tests in the background.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(looked_at_first, "_in_child", _in_no_child)
    monkeypatch.setattr(lines, "_FIRST_SILENCE_S", math.inf)
    monkeypatch.setattr(pass_progress, "_TELL_S", math.inf)
    monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path / "scratch"))
    np.random.seed(0)  # noqa: NPY002, as it is that generator
    ways = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, way in ways.items():
        if way is not None:  # of a handler that no Python set
            signal.signal(number, way)
    with contextlib.suppress(FileNotFoundError):  # moved: ext4 looks at all files deleted of late before it makes one
        _manifests.rename(tmp_path.with_name(f"{tmp_path.name}-manifests"))


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small data streams: a dozen rows a block, several groups of blocks from several places, a small row buffer."""
    from bigsvm.run.fit import sizes as planning

    monkeypatch.setattr(planning, "_COPY_BLOCK", 600)
    monkeypatch.setattr(planning, "BLOCK_BYTES", 6000)
    monkeypatch.setattr(planning.Sizes, "resident_from", lambda self: 1 << 50)

    def small_row_buffer(self: Any, store: Any, spare: int, unpacked: bool = False) -> int:
        return min(spare, whole_row_buffer(store, self.packed) // 3)

    monkeypatch.setattr(planning.Sizes, "row_buffer", small_row_buffer)


@pytest.fixture
def streaming_hundreds(streaming: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where there are thousands of rows: some hundred a block, since a block of a dozen takes as long."""
    from bigsvm.run.fit import sizes as planning

    monkeypatch.setattr(planning, "_COPY_BLOCK", 6000)
    monkeypatch.setattr(planning, "BLOCK_BYTES", 60_000)
