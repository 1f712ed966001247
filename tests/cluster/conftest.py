"""Owns the fixtures that the cluster tests of the operator share."""

from outages import early_outages, outages
from reservation_stage import operator, stage

__all__ = ["early_outages", "operator", "outages", "stage"]
