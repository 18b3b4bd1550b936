"""The entry of the command line: a group that imports a command only when it is called, and the exit codes.

`bigsvm --help` imports only click.  Therefore the one-line help of each command is here, not in its module.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

import click

import bigsvm
from bigsvm.cli.command import Call
from bigsvm.cli.failures import failure_of
from bigsvm.cli.interrupts import Interruption, hush_event_loops, unwinding_on_signals
from bigsvm.cli.session import say, write_failure
from bigsvm.errors import UsageError, one_line
from bigsvm.files.standard_output import drop_what_nobody_reads, silence_standard_output, to_standard_output

COMPLETE = "_BIGSVM_COMPLETE"
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})$")
_OBJECTS_AT_START = 250_000  # imports make some 200,000 objects before a fit begins, and nearly all of them stay

# module under cli/commands -> one-line help, in the order of a first day with the program
_LISTED = {
    "training.demo": "Train on a data set several times the memory budget; the first command to try.",
    "stores.ingest": "Turn text, tables, Parquet, AnnData or arrays into a store.",
    "training.fit": "Train a support vector machine and prove how close to the optimum it is.",
    "training.resume": "Continue a stopped fit; the model has the same bytes.",
    "training.tune": "Choose C by cross-validation, all models on the same passes over the data.",
    "training.plan": "Show what a fit would do and need, without doing it.",
    "reports.watch": "Follow a fit in another process.",
    "models.predict": "Write the labels and scores of rows.",
    "models.evaluate": "Measure a model on a store: accuracy, F1, ROC AUC, confusion matrix.",
    "models.certify": "Prove the duality gap of a saved model again, independently of its run.",
    "models.inspect": "Show what a store, a model or a run holds.",
    "reports.report": "Make one page about a run, a model or a registry.",
    "reports.plot": "Compare fits: gap against passes and seconds.",
    "models.export": "Write a model for another program: ONNX, LIBLINEAR, LIBSVM, .npz.",
    "models.import": "Read a model that LIBLINEAR or LIBSVM trained, or an .npz export.",
    "models.promote": "Make a model the current one of a registry, in one atomic step.",
    "models.rollback": "Make an earlier model of a registry current again.",
    "models.history": "Show what was promoted and rolled back in a registry.",
    "stores.dump": "Write the rows of a store as text, a table or another store.",
    "stores.seal": "Write the manifest of chunk digests into a store.",
    "stores.verify": "Check every chunk of a store against its manifest.",
    "machine.doctor": "Show what this machine offers: cores, memory limit, scratch space, versions.",
    "machine.cache": "Show or clear what bigsvm keeps: compiled code, manifests, working copies.",
    "machine.completion": "Print the completion script of a shell.",
}
COMMANDS = {place.rpartition(".")[2]: (place, said) for place, said in _LISTED.items()}
"""Name -> (module under cli/commands, one-line help)."""


class LazyGroup(click.Group):
    """A group of COMMANDS, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return import_module(f"bigsvm.cli.commands.{COMMANDS[cmd_name][0]}").command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, but if an option of a command precedes the command, the error says where it belongs."""
        named = next((arg for arg in args if arg in COMMANDS), None)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            command = None if named is None else self.get_command(ctx, named)
            if command is None or not any(error.option_name in param.opts for param in command.params):
                raise
            hint = f"options come after the command: bigsvm {named} ... {error.option_name}"
            raise UsageError(f"No such option {error.option_name!r} before the command", hint=hint) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, but the error for an unknown command suggests the closest name."""
        named = args[0]
        if named not in COMMANDS and not named.startswith("-"):
            import difflib  # here, because `bigsvm --help` does not need it

            close = difflib.get_close_matches(named, COMMANDS, 1)
            ctx.fail(f"No such command {named!r}" + (f", did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, said) for name, (_, said) in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="Exact support vector machines on data larger than memory, certified by a duality gap.",
)
@click.version_option(bigsvm.__version__, prog_name="bigsvm", message="%(prog)s %(version)s")
def group() -> None:
    pass


def main(args: Sequence[str] | None = None, held: Collection[int] = ()) -> None:
    """Run the command line and end the process with its exit code.

    held : signals that the caller has blocked, and that are heeded once there are handlers for them
    """
    _open_closed_streams()
    _collect_late()
    # pyarrow's default allocator keeps freed memory, which would count against the budget; the C library's returns it.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    code = run(sys.argv[1:] if args is None else list(args), to_the_end=True, held=held)
    drop_what_nobody_reads()
    sys.exit(code)


def _collect_late() -> None:
    """Delay the first garbage collection until the libraries are imported, and then exclude their objects from it.

    Scanning them again and again during the imports took a sixth of the CPU time of a small fit.
    """
    former = gc.get_threshold()

    def looked(phase: str, _: dict[str, int]) -> None:
        if phase == "stop":
            gc.callbacks.remove(looked)
            gc.freeze()
            gc.set_threshold(*former)

    gc.set_threshold(_OBJECTS_AT_START, *former[1:])
    gc.callbacks.append(looked)


def run(args: list[str], to_the_end: bool = False, held: Collection[int] = ()) -> int:
    """Run the command line; the exit code.

    to_the_end : the process ends after it;  held : as in `main`
    """
    call = Call()
    with unwinding_on_signals(to_the_end), _warnings_in_one_line(_flag(args, "--debug")):
        try:
            if held:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, held)  # what came meanwhile comes now
            code = _invoke(args, call)
            with to_standard_output():
                sys.stdout.flush()
            return code
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, Interruption):
                hush_event_loops()  # again, since a library may have put back the filters of warnings that it had found
            if isinstance(error, BrokenPipeError) and _reader_has_gone(args):
                # As `head` does.  Python would complain again when it flushes at exit.
                silence_standard_output()
                return call.session.exit_code if call.session is not None else 0
            if isinstance(error, KeyboardInterrupt) and call.session is not None and call.session.finished:
                return call.session.exit_code  # the result was already written
            try:
                code = _report(error, args, call)
                sys.stdout.flush()
                return code
            except OSError:  # a closed pipe, or a full disk
                silence_standard_output()
                return failure_of(error).code


def _invoke(args: list[str], call: Call) -> int:
    """Parse and run.  (click's own `main` would handle Ctrl-C and closed pipes in other ways than the contract.)"""
    completion = os.environ.get(COMPLETE)
    if completion:
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, "bigsvm", COMPLETE, completion)
    try:
        with group.make_context("bigsvm", list(args), obj=call) as ctx:  # click consumes the list
            code = group.invoke(ctx)
            return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code
    except OSError as error:
        if call.session is None and error.filename is None:  # of what click itself wrote: a help text
            with to_standard_output():
                raise
        raise


def _report(error: BaseException, args: list[str], call: Call) -> int:
    """Write a failure to standard error, and with --json to standard output; returns the exit code."""
    session = call.session
    as_json = session.as_json if session is not None else _flag(args, "--json")
    debug = session.debug if session is not None else _flag(args, "--debug")
    named = [arg for arg in args if arg in COMMANDS]
    command = session.command if session is not None else (named[0] if named else "bigsvm")
    failure = failure_of(error, debug)
    if debug:
        traceback.print_exception(error)
    said = failure.said
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if not as_json:
            say(error.format_message())
            return failure.code
        said = "a command is needed"
    as_event = session is not None and session.log_format == "json"
    write_failure(command, failure.code, said, failure.hint, as_json, as_event)
    return failure.code


def _flag(args: list[str], flag: str) -> bool:
    """Whether a flag is among the arguments; for failures that come before they are parsed."""
    before = args[: args.index("--")] if "--" in args else args
    return flag in before


@contextlib.contextmanager
def _warnings_in_one_line(debug: bool) -> Any:
    """Print warnings of libraries as one line each, without the source line, which tells a user nothing."""
    former = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        say(f"bigsvm: warning: {one_line(str(message))}")

    if not debug:
        warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = former


def _open_closed_streams() -> None:
    """Open /dev/null for standard streams that are closed, so that no other file gets their descriptors."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")


def _reader_has_gone(args: list[str]) -> bool:
    """Whether a pipe for the output of this call has no reader: standard output, or one that `args` name (/dev/fd/63).

    Other pipes may break too, such as one to a child process or a server.  Then the command has failed.
    """
    import select  # here, because `bigsvm --help` does not need it

    pipes = select.poll()
    for number in {1, *(int(found) for arg in args for found in _DESCRIPTOR.findall(arg))}:
        pipes.register(number, 0)  # errors are told without being asked for
    return any(told & (select.POLLERR | select.POLLHUP) for _, told in pipes.poll(0))
