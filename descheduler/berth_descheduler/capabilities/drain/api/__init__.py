"""The path `/v1/drains`."""
