"""Contracts and arithmetic that both programs share; no I/O of any kind."""
