"""Entry point of `python -m berth_operator`."""

from berth_operator.cli import main

main()
