"""Owns the fixtures that the cluster tests of the operator share."""

from outages import outages
from reservation_stage import operator, stage

__all__ = ["operator", "outages", "stage"]
