"""One call of the command line: its streams and its clock; how results and failures are written."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from bigsvm.cli.interrupts import check_interrupted, check_postponed
from bigsvm.errors import Interrupted, OutputError, anchor_of, one_line
from bigsvm.events import Emit, Event, Thinned, Warned, fan_out, silent
from bigsvm.files.standard_output import to_standard_output
from bigsvm.files.undisturbed import is_done

if TYPE_CHECKING:
    from bigsvm.errors import BigSVMError

SCHEMA_VERSION = 1


class Session:
    """The argument that every command receives.

    command : its name, for the JSON document
    as_json : write exactly one JSON document to standard output
    quiet : write only failures to standard error, and to standard output no summary of what was written to disk
    verbose : 0, 1 or more
    log_format : 'text' or 'json', of standard error
    progress : whether a live view may be drawn
    debug : show tracebacks
    exit_code : the exit code, also if the reader of standard output closes it early
    """

    def __init__(
        self,
        command: str,
        as_json: bool = False,
        quiet: bool = False,
        verbose: int = 0,
        log_format: str = "text",
        progress: bool = True,
        debug: bool = False,
    ) -> None:
        self.command, self.as_json, self.quiet, self.verbose = command, as_json, quiet, verbose
        self.log_format, self.progress, self.debug = log_format, progress, debug
        self.exit_code = 0
        self.finished = False
        """The result is written."""
        self.warnings: list[str] = []
        self._began = time.monotonic()
        self._told: set[str] = set()  # lines about compiling, of the views of all steps

    def warn(self, message: str) -> None:
        """Print a warning, one line on standard error, and add it to the result.  Each message only once."""
        if message in self.warnings:
            return
        self.warnings.append(message)
        if self.quiet:
            return
        if self.log_format == "json":
            at_s = round(time.monotonic() - self._began, 6)
            say(_json_line({"event": "Warned", "at_s": at_s, "message": message}))
        else:
            say(f"bigsvm: warning: {one_line(message)}")

    def note(self, message: str) -> None:
        """Print a line on standard error that is neither a warning nor part of the result."""
        if not self.quiet and self.log_format == "text":
            say(message)

    def note_of_typing(self, *sources: str) -> None:
        """Print a line if one of the sources is standard input and that is a terminal: the wait looks like a hang."""
        if "-" in sources and sys.stdin is not None and sys.stdin.isatty():
            self.note("reading svmlight text from the terminal; Ctrl-D ends it")

    def warn_of(self, source: Any) -> None:
        """Print the warnings of a store or a result."""
        for message in getattr(source, "warnings", None) or []:
            self.warn(message)

    @contextlib.contextmanager
    def watching(self, *others: Emit) -> Iterator[Emit]:
        """An Emit that shows progress on standard error during the block; `others` receive the same thinned events."""
        with contextlib.ExitStack() as stack:
            view = Thinned(fan_out([self._noted, self._view(stack), *others]))
            stack.callback(view.flush)  # so that an interrupted run shows its last events before the view closes

            def emit(event: Event) -> None:
                check_interrupted()
                if isinstance(event, Warned) and event.message in self.warnings:
                    return  # printed already, when the store was opened
                view(event)

            yield emit

    def _noted(self, event: Event) -> None:
        """Add warnings to the result, also those about failed observers."""
        if isinstance(event, Warned):
            self.warnings.append(event.message)

    def _view(self, stack: contextlib.ExitStack) -> Emit:
        if self.quiet:
            return silent
        if self.log_format == "json":
            from bigsvm.observe.jsonl import JsonlStream

            return JsonlStream(sys.stderr)
        if self.progress and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            # Importing rich takes 0.1 s, so it is imported only if there is a terminal.
            from bigsvm.observe.progress import LiveProgress

            return stack.enter_context(LiveProgress(sys.stderr, verbose=self.verbose > 0, told=self._told))
        from bigsvm.observe.lines import PlainLines

        return PlainLines(sys.stderr, verbose=self.verbose > 0, told=self._told)

    def finish(
        self, result: dict[str, Any], text: str, status: str = "ok", exit_code: int = 0, made: bool = False,
        only_told: bool = False,
    ) -> int:  # fmt: skip
        """Write the result to standard output, as text or as one JSON document; returns `exit_code`.

        made : the result of the command is on disk; if it succeeded, --quiet then omits `text`
        only_told : the command has changed nothing, so it may still be interrupted

        Raises OutputError if standard output cannot take it, and, with `only_told`, Interruption if a signal came that
        had no effect yet.
        """
        if only_told:
            check_postponed()
        self.exit_code = exit_code
        document: dict[str, Any] = {}
        if self.as_json:
            from bigsvm.observe.jsonl import plain

            document = {
                "schema_version": SCHEMA_VERSION,
                "command": self.command,
                "status": status,
                "elapsed_s": round(time.monotonic() - self._began, 6),
                "warnings": self.warnings,
                "result": plain(result),
            }
        try:
            with to_standard_output():
                if self.as_json:
                    write_json(document)
                elif text and not (made and self.quiet and exit_code == 0):
                    click.echo(_printable(text))
                sys.stdout.flush()
        except OutputError as error:
            if is_done():  # rows that were added, for example
                error.what += "; the command itself is done"
                error.hint = "do not repeat it"
            raise
        self.finished = True
        return exit_code


_OBEYED = re.compile(r"(?!\x1b\[\d{1,3}m)[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, which names and labels may contain; line ends, tabs and the colours of `plot` may stay."""


def say(line: str) -> None:
    """Write a line to standard error.  If nobody reads it, or its disk is full, the command does its work without."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def _printable(text: str) -> str:
    """The text with a question mark for each control character, and each that the encoding of standard output lacks."""
    text = _OBEYED.sub("?", text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        # With surrogateescape a path that is not UTF-8 is written as its bytes.
        if sys.stdout.errors != "surrogateescape":
            return text.encode(encoding, "replace").decode(encoding)
    return text


def write_json(document: dict[str, Any]) -> None:
    """Write one JSON document and a newline to standard output.  Raises ValueError for NaN."""
    from bigsvm.observe.jsonl import without_surrogates

    document = without_surrogates(document)
    text = json.dumps(document, allow_nan=False, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # a character that the encoding of standard output lacks
        text = json.dumps(document, allow_nan=False)
    click.echo(text)


def _json_line(document: dict[str, Any]) -> str:
    """A line of standard error with --log-format json."""
    from bigsvm.observe.jsonl import without_surrogates

    return json.dumps(without_surrogates(document))


def write_failure(
    command: str, code: int, error: BigSVMError | str, hint: str, as_json: bool, as_event: bool = False
) -> None:
    """Write a failure: one line on standard error, and with --json also the document on standard output.

    as_event : the line is JSON, as with --log-format json
    """
    what, where = str(getattr(error, "what", error)), str(getattr(error, "where", ""))
    line, advice = one_line(f"{where}: {what}" if where else what), one_line(hint)
    see = f"errors.md#{getattr(error, 'anchor', anchor_of(code))}"
    if as_event:
        told = {"event": "Failed", "code": code, "message": what, "where": where, "hint": hint, "see": see}
        say(_json_line(told))
    else:
        say(f"bigsvm: error: {line}" + (f" ({advice})" if advice else "") + f" [{see}]")
    if as_json:
        detail: dict[str, Any] = {"code": code, "message": what, "where": where, "hint": hint}
        smallest = getattr(error, "min_memory_bytes", None)
        if smallest is not None:
            detail["min_memory_bytes"] = smallest
        status = "interrupted" if code == Interrupted.code else "error"
        document = {"schema_version": SCHEMA_VERSION, "command": command, "status": status, "error": detail}
        if (reached := getattr(error, "reached", None)) is not None:
            from bigsvm.observe.jsonl import plain

            document["result"] = plain(reached)
        try:
            write_json(document)
        except OSError:
            pass  # standard output failed too; the line on standard error has been written
