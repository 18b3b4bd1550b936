"""bigsvm completion: prints the script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session


@bigsvm_command(light=True, help='Print the completion script of a shell.  bash: eval "$(bigsvm completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, session: Session, shell: str) -> int:
    kind = get_completion_class(shell)
    assert kind is not None
    group = ctx.find_root().command
    script = kind(group, {}, "bigsvm", "_BIGSVM_COMPLETE").source()
    return session.finish({"shell": shell, "script": script}, script)
