"""The fixtures that the cluster tests of the operator share."""

from descheduling_stage import cluster, scene, serving_operator
from outages import early_outages, outages
from reservation_stage import operator, stage

__all__ = ["cluster", "early_outages", "operator", "outages", "scene", "serving_operator", "stage"]
