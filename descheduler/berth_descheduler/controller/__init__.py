"""Runs the cluster's DeschedulerPolicies.

There is one leader among the replicas and one run at a time; every fact is in the API.
"""

from berth_descheduler.controller.leader import LeaderElector
from berth_descheduler.controller.store import ServiceContext

__all__ = ["LeaderElector", "ServiceContext"]
