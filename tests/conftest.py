"""Owns what all tests share: the sandbox of a run."""

from cluster_fixtures import sandbox

__all__ = ["sandbox"]
