"""The components of the control plane and their command lines."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from berth_sandbox import certificates
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import LOOPBACK, Ports
from berth_sandbox.pretended_nodes import PRETENDED_NODE_LABEL
from berth_sandbox.settings import LEASE_SECONDS


class Component(StrEnum):
    """A process of the control plane; the value is also its log's name."""

    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    SECOND_SCHEDULER = "second-scheduler"
    KWOK = "kwok"
    VOLCANO_SCHEDULER = "volcano-scheduler"
    VOLCANO_CONTROLLERS = "volcano-controller-manager"
    OPERATOR = "berth-operator"
    DESCHEDULER = "berth-descheduler"

    @property
    def binary(self) -> str:
        """Return the name of the program that this component runs."""
        return "kube-scheduler" if self is Component.SECOND_SCHEDULER else self.value


VOLCANO_COMPONENTS: Final = (Component.VOLCANO_SCHEDULER, Component.VOLCANO_CONTROLLERS)
SERVICES: Final = (Component.OPERATOR, Component.DESCHEDULER)
"""Berth's own programs, which this Python runs; the value is also the name of their account."""

Binaries = Mapping[str, Path]
"""Program name to its path."""

_SERVICE_ACCOUNT_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
# At the default of 20 requests a second the controllers take minutes for the pods of a few hundred nodes.
_CLIENT_QPS: Final = 500
_CONCURRENT_SYNCS: Final = 20
_NODE_GRACE_SECONDS: Final = 10
"""A node is unreachable so long after its Lease has expired; Kubernetes has 50 s for a Lease of 40."""
_AUDIT_LOG_MEGABYTES: Final = 100
# Half of the default, since each job of a test waits for the next session.
_VOLCANO_PERIOD: Final = "500ms"
_KWOK_ALONE: Final = ("--manage-all-nodes=true",)
_KWOK_AMONG_OTHERS: Final = ("--manage-all-nodes=false", f"--manage-nodes-with-label-selector={PRETENDED_NODE_LABEL}")


@dataclass(frozen=True, slots=True)
class ComponentPlace:
    """The inputs of every command line."""

    binaries: Binaries
    folder: SandboxFolder
    ports: Ports
    real_nodes: int = 0
    """How many real nodes there are beside those that kwok plays."""
    node_lease_seconds: int = LEASE_SECONDS
    """How long the Lease of a node lasts that kwok plays."""


def build_command(component: Component, place: ComponentPlace) -> tuple[str, ...]:
    """Return the command line that starts a component."""
    module = component.value.replace("-", "_")
    program = (sys.executable, "-m", module) if component in SERVICES else (str(place.binaries[component.binary]),)
    return (*program, *_ARGUMENTS[component](place))


def health_url(component: Component, ports: Ports) -> str:
    """Return the URL that answers 200 once the component is ready."""
    scheme, port, path = {
        Component.ETCD: ("http", ports.etcd, "health"),
        Component.API_SERVER: ("https", ports.api_server, "readyz"),
        Component.CONTROLLER_MANAGER: ("https", ports.controller_manager, "healthz"),
        Component.SCHEDULER: ("https", ports.scheduler, "readyz"),
        Component.SECOND_SCHEDULER: ("https", ports.second_scheduler, "readyz"),
        Component.KWOK: ("http", ports.kwok, "readyz"),
        Component.VOLCANO_SCHEDULER: ("http", ports.volcano_scheduler, "healthz"),
        Component.VOLCANO_CONTROLLERS: ("http", ports.volcano_controllers, "healthz"),
        Component.OPERATOR: ("http", ports.operator, "readyz"),
        Component.DESCHEDULER: ("http", ports.descheduler, "readyz"),
    }[component]
    return f"{scheme}://{LOOPBACK}:{port}/{path}"


def _etcd_arguments(place: ComponentPlace) -> tuple[str, ...]:
    """Return etcd's arguments; nothing is synced to disk, because a sandbox ends with its machine."""
    client = f"http://{LOOPBACK}:{place.ports.etcd}"
    peer = f"http://{LOOPBACK}:{place.ports.etcd_peer}"
    return (
        "--name=sandbox",
        f"--data-dir={place.folder.etcd_data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=sandbox={peer}",
        "--log-level=warn",
    )


def _api_server_arguments(place: ComponentPlace) -> tuple[str, ...]:
    """Return the API server's arguments: RBAC on, default admission and features."""
    folder = place.folder
    return (
        f"--etcd-servers=http://{LOOPBACK}:{place.ports.etcd}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        # It would publish the API server's address in the Endpoints of the Service kubernetes, which may not be
        # loopback ones (`ValidateEndpointIP`).
        "--endpoint-reconciler-type=none",
        f"--secure-port={place.ports.api_server}",
        f"--cert-dir={folder.root / 'pki'}",
        *_serving_certificate(folder),
        f"--client-ca-file={folder.certificate(certificates.AUTHORITY)}",
        f"--service-account-issuer={_SERVICE_ACCOUNT_ISSUER}",
        f"--service-account-key-file={folder.certificate(certificates.SERVICE_ACCOUNTS)}",
        f"--service-account-signing-key-file={folder.key(certificates.SERVICE_ACCOUNTS)}",
        # The Node authorizer lets a kubelet read only what its own pods need. kwok, one user for all nodes, would be
        # refused (`plugin/pkg/auth/authorizer/node`).
        f"--authorization-mode={'Node,RBAC' if place.real_nodes else 'RBAC'}",
        *(_node_access(folder) if place.real_nodes else ()),
        "--service-cluster-ip-range=10.96.0.0/16",
        # False by default, and then pods with privileged containers are refused, as those of CNI plugins are.
        "--allow-privileged=true",
        f"--audit-policy-file={folder.audit_policy}",
        f"--audit-log-path={folder.audit_log}",
        f"--audit-log-maxsize={_AUDIT_LOG_MEGABYTES}",
        "--audit-log-maxbackup=1",
    )


def _node_access(folder: SandboxFolder) -> tuple[str, ...]:
    """Return the arguments by which the API server reaches kubelets, for logs and exec."""
    return (
        f"--egress-selector-config-file={folder.egress_config}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={folder.certificate(certificates.ADMIN.name)}",
        f"--kubelet-client-key={folder.key(certificates.ADMIN.name)}",
    )


def _serving_certificate(folder: SandboxFolder) -> tuple[str, ...]:
    """Return the arguments that make a component serve with the sandbox's certificate."""
    return (
        f"--tls-cert-file={folder.certificate(certificates.SERVER)}",
        f"--tls-private-key-file={folder.key(certificates.SERVER)}",
    )


def _controller_manager_arguments(place: ComponentPlace) -> tuple[str, ...]:
    """Return the controller manager's arguments: all standard controllers, only faster."""
    folder = place.folder
    kubeconfig = folder.user_kubeconfig(certificates.CONTROLLER_MANAGER.name)
    syncs = ("deployment", "replicaset", "statefulset", "job", "gc", "service-endpoint")
    return (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        # No client authenticates at its port, so that it need not wait for the ConfigMap
        # extension-apiserver-authentication.
        "--authentication-skip-lookup=true",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={place.ports.controller_manager}",
        *_serving_certificate(folder),
        "--leader-elect=false",
        # Each controller under its own account, with the rights of a real cluster, so that a policy about accounts
        # meets the same names.
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={folder.key(certificates.SERVICE_ACCOUNTS)}",
        f"--root-ca-file={folder.certificate(certificates.AUTHORITY)}",
        # The default is below /usr/libexec, which only root can make.
        f"--flex-volume-plugin-dir={folder.root / 'volume-plugins'}",
        f"--kube-api-qps={_CLIENT_QPS}",
        f"--kube-api-burst={2 * _CLIENT_QPS}",
        f"--node-monitor-grace-period={place.node_lease_seconds + _NODE_GRACE_SECONDS}s",
        *(f"--concurrent-{name}-syncs={_CONCURRENT_SYNCS}" for name in syncs),
    )


def _scheduler_arguments(place: ComponentPlace) -> tuple[str, ...]:
    return _any_scheduler_arguments(place, Component.SCHEDULER, place.ports.scheduler)


def _second_scheduler_arguments(place: ComponentPlace) -> tuple[str, ...]:
    return _any_scheduler_arguments(place, Component.SECOND_SCHEDULER, place.ports.second_scheduler)


def _any_scheduler_arguments(place: ComponentPlace, scheduler: Component, port: int) -> tuple[str, ...]:
    """Return a scheduler's arguments; its health and metrics need no token."""
    kubeconfig = place.folder.user_kubeconfig(certificates.SCHEDULER.name)
    return (
        f"--config={place.folder.scheduler_config(scheduler)}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-skip-lookup=true",
        "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        *_serving_certificate(place.folder),
    )


def _kwok_arguments(place: ComponentPlace) -> tuple[str, ...]:
    """Return kwok's arguments: it plays the kubelet of every node that is not real."""
    return (
        f"--kubeconfig={place.folder.user_kubeconfig(certificates.KWOK.name)}",
        f"--config={place.folder.kwok_config}",
        *(_KWOK_AMONG_OTHERS if place.real_nodes else _KWOK_ALONE),
        f"--node-lease-duration-seconds={place.node_lease_seconds}",
        # An address for documentation (RFC 5737): nothing answers there.
        "--node-ip=192.0.2.1",
        "--cidr=10.128.0.0/9",
        "--v=WARN",
        f"--server-address={LOOPBACK}:{place.ports.kwok}",
    )


def _volcano_scheduler_arguments(place: ComponentPlace) -> tuple[str, ...]:
    """Return the arguments of Volcano's scheduler: two sessions a second, no files of its own."""
    return (
        f"--scheduler-conf={place.folder.scheduler_config(Component.VOLCANO_SCHEDULER)}",
        f"--schedule-period={_VOLCANO_PERIOD}",
        "--cache-dumper=false",
        *_volcano_arguments(place, place.ports.volcano_scheduler),
    )


def _volcano_controllers_arguments(place: ComponentPlace) -> tuple[str, ...]:
    return _volcano_arguments(place, place.ports.volcano_controllers)


def _volcano_arguments(place: ComponentPlace, port: int) -> tuple[str, ...]:
    """Return the arguments that both of Volcano's components share."""
    return (
        f"--kubeconfig={place.folder.user_kubeconfig(certificates.VOLCANO.name)}",
        "--leader-elect=false",
        "--enable-healthz=true",
        f"--healthz-address={LOOPBACK}:{port}",
        f"--kube-api-qps={_CLIENT_QPS}",
        f"--kube-api-burst={2 * _CLIENT_QPS}",
    )


def _operator_arguments(place: ComponentPlace) -> tuple[str, ...]:
    """Return the operator's arguments; its webhook listens on a free port."""
    return ("--webhook-port=0", *_service_arguments(place, Component.OPERATOR, place.ports.operator))


def _descheduler_arguments(place: ComponentPlace) -> tuple[str, ...]:
    return _service_arguments(place, Component.DESCHEDULER, place.ports.descheduler)


def _service_arguments(place: ComponentPlace, service: Component, port: int) -> tuple[str, ...]:
    kubeconfig = place.folder.user_kubeconfig(service.value)
    return (f"--kubeconfig={kubeconfig}", f"--health-address={LOOPBACK}:{port}")


_ARGUMENTS: Final[Mapping[Component, Callable[[ComponentPlace], tuple[str, ...]]]] = {
    Component.ETCD: _etcd_arguments,
    Component.API_SERVER: _api_server_arguments,
    Component.CONTROLLER_MANAGER: _controller_manager_arguments,
    Component.SCHEDULER: _scheduler_arguments,
    Component.SECOND_SCHEDULER: _second_scheduler_arguments,
    Component.KWOK: _kwok_arguments,
    Component.VOLCANO_SCHEDULER: _volcano_scheduler_arguments,
    Component.VOLCANO_CONTROLLERS: _volcano_controllers_arguments,
    Component.OPERATOR: _operator_arguments,
    Component.DESCHEDULER: _descheduler_arguments,
}
