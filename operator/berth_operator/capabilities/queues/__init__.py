"""Queues: their pods wait behind a scheduling gate until they fit, and slots hold what is guaranteed."""
