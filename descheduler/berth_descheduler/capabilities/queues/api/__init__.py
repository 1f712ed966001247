"""Guarantees of queues over HTTP."""
