"""Where block tasks run: the registry of mappers.

A mapper maps a pure task over shares and gives results in the order of the shares.  `local.py` is `map` and
a thread pool; `dask.py` is worker processes.  Nothing else differs, and the bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bigsvm.config import FitConfig
from bigsvm.machine import core_count
from bigsvm.run.execute.local import ThreadMapper
from bigsvm.tasks import Mapper, SerialMapper


@contextmanager
def open_mapper(config: FitConfig) -> Iterator[Mapper]:
    """The mapper that `config` asks for, closed at the end of the block.

    `scheduler` None or 'threads': threads of this process; 'serial': none; 'processes': worker processes on
    this machine; else the address of a dask scheduler (or `scheduler_file`).

    Raises
    ------
    MissingInput : the scheduler's address or file does not answer.
    """
    threads = config.threads or core_count()
    if config.scheduler_file is None and config.scheduler in (None, "threads", "serial"):
        if config.scheduler == "serial" or threads == 1:
            yield SerialMapper()
        else:
            with ThreadMapper(threads) as mapper:
                yield mapper
        return
    # dask takes a second to import, and only these runs need it.
    from bigsvm.run.execute.dask import open_dask_mapper

    with open_dask_mapper(config.scheduler, config.scheduler_file, config.workers) as dask_mapper:
        yield dask_mapper
