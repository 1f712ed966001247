"""The path `/v1/calendar`."""
