"""Runs the descheduler service: `python -m berth_descheduler`."""

from berth_descheduler.server import main

main()
