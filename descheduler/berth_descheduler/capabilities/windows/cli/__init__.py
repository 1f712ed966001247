"""The command `berth calendar`."""
