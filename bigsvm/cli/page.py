"""Pages and pictures as outputs of commands: refused before any work, written whole or not at all."""

from __future__ import annotations

from pathlib import Path


def check_page(out: Path | None, overwrite: bool) -> None:
    """Refuse a page that could not be made.

    out : None for standard output

    Raises
    ------
    UsageError : matplotlib is not installed. OutputError : the file exists, or cannot be written.
    """
    from bigsvm.files.outputs import check_plain_output
    from bigsvm.report.draw.plots import check_matplotlib

    check_matplotlib()
    if out is not None:
        check_plain_output(out, overwrite, makes_folders=True)


def write_page(out: Path, content: bytes, overwrite: bool) -> None:
    """Write a page or a picture, folders above it included.  Raises OutputError."""
    from bigsvm.files.outputs import new_output
    from bigsvm.files.space import cannot_write

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error
    with new_output(out, overwrite, len(content)) as file:
        file.write(content)


def report_run(run: Path, out: Path) -> None:
    """Write the page about a run whose record is there, in the place of an older one.  Raises OutputError."""
    from bigsvm.report.make import make_report
    from bigsvm.report.page import page

    write_page(out, page(make_report(run)[0]).encode(), overwrite=True)
