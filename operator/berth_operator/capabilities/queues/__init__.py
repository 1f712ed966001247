"""Queues: their pods wait at a gate until they fit, and slots hold what is guaranteed."""
