"""Keeps moves off nodes whose actual use is high."""
