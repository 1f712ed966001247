"""The only code that talks to the Kubernetes API server; no decisions of ours."""

from berth_kube.client import ClientSettings, KubeClient, connect
from berth_kube.listing import Listing
from berth_kube.resources import Resource
from berth_kube.watching import Bookmark, Changed, Listed, Removed, WatchItem

__all__ = [
    "Bookmark",
    "Changed",
    "ClientSettings",
    "KubeClient",
    "Listed",
    "Listing",
    "Removed",
    "Resource",
    "WatchItem",
    "connect",
]
