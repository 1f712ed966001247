"""The calls that carry out what is decided."""
