"""The certificates of a sandbox: one authority, one server, and one certificate for each client."""

import datetime as dt
from dataclasses import dataclass
from typing import Final

from berth_sandbox.ports import LOOPBACK

AUTHORITY: Final = "ca"
SERVER: Final = "kube-apiserver"
SERVICE_ACCOUNTS: Final = "service-accounts"

LIFETIME: Final = dt.timedelta(days=365)
SERVER_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", LOOPBACK)


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Identity in a client certificate: file name, user and groups."""

    name: str
    user: str
    groups: tuple[str, ...] = ()


ADMIN: Final = ClientIdentity("admin", "berth-sandbox-admin", ("system:masters",))
CONTROLLER_MANAGER: Final = ClientIdentity("kube-controller-manager", "system:kube-controller-manager")
SCHEDULER: Final = ClientIdentity("kube-scheduler", "system:kube-scheduler")
KWOK: Final = ClientIdentity("kwok", "berth-sandbox-kwok", ("system:masters",))
"""Kwok plays every kubelet at once, which no node's role allows."""
VOLCANO: Final = ClientIdentity("volcano", "berth-sandbox-volcano", ("system:masters",))
"""Volcano's chart, which has its roles, is not installed."""

CLIENTS: Final = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, KWOK, VOLCANO)
