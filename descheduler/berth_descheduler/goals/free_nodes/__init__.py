"""Frees nodes: `Threshold` by rules of thumb, `Consolidate` as many as possible."""
