"""The program: `bigsvm`, and `python -m bigsvm`.

The command line takes a tenth of a second to load.  A signal that comes meanwhile would end Python with a traceback; it
waits until there are handlers for it.
"""

import signal


def main() -> None:
    """Run the command line and end the process with its exit code."""
    ours = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    held = ours - signal.pthread_sigmask(signal.SIG_BLOCK, ours)

    from bigsvm.cli.main import main as command_line

    command_line(held=held)


if __name__ == "__main__":
    main()
