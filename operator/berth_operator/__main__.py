"""Runs the operator: `python -m berth_operator`."""

from berth_operator.cli import main

main()
