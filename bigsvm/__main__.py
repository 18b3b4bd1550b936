"""`python -m bigsvm` is the command line."""

from bigsvm.cli.main import main

main()
