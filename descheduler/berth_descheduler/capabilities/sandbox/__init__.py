"""The commands `berth sandbox`."""
