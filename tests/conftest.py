"""Owns what all tests share: the sandbox of a run."""

from cluster_fixtures import pytest_collection_finish, sandbox

__all__ = ["pytest_collection_finish", "sandbox"]
