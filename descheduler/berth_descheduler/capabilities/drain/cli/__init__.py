"""The command `berth drain`."""
