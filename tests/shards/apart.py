"""A mapper of this process that does as worker processes that come and go."""

from __future__ import annotations

import pickle
from typing import Any

from bigsvm.solvers import shard_tasks
from bigsvm.tasks import SerialMapper


class Apart(SerialMapper):
    """As worker processes: tasks see nothing of the caller's, and what they know is lost again and again.

    every : so many calls; a step of newton-ws has some hundred, all of which are replayed
    """

    in_process = False

    def __init__(self, every: int = 1) -> None:
        self.asked, self._every = 0, every

    def on_shards(self, task: Any, shards: Any, published: Any, at_most: int | None = None) -> Any:
        """Nothing is known any more of the shards whose turn it is; of the others all is."""
        self.asked += 1
        for key in list(shard_tasks._HELD) if self.asked % self._every == 0 else []:
            if (key[1] + self.asked // self._every) % 2:
                del shard_tasks._HELD[key]
        return super().on_shards(task, pickle.loads(pickle.dumps(shards)), pickle.loads(pickle.dumps(published)))
