"""A table of names and values on a terminal that is redrawn in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text


class LiveTable:
    """A context manager that shows the latest rows; the table disappears at its end.

    stream : where to draw, normally standard error
    """

    def __init__(self, stream: TextIO, title: str, console: Console | None = None) -> None:
        self._title = title
        self._live = Live(
            console=console or Console(file=stream),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def show(self, rows: Sequence[tuple[str, str]]) -> None:
        """Draw these rows instead of the former ones."""
        # Text instead of markup, because a path may contain square brackets.
        table = Table(title=Text(self._title), show_header=False, title_justify="left")
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for name, value in rows:
            table.add_row(Text(name), Text(value))
        self._live.update(table, refresh=True)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
