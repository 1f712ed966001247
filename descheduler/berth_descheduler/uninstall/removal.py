"""The steps of an uninstallation, in the order in which nothing is left behind.

1. End what is live while both programs run, so that they clear up after themselves: queues, windows and zones,
   policies, plans, and then the Reservations that these made. A program that is not there is not waited for.
2. Stop the programs, which would put marks back.
3. Remove the webhooks and the admission policies, the latter because they refuse to others what comes next.
4. Take every mark off pods and nodes, and delete placeholders, fences and priority classes.
5. Remove the rest of the release, its namespace and, if asked, the CRDs.

Each step removes what it finds, so that an interrupted uninstallation is begun anew and goes on where it ended.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from berth_core import (
    DESCHEDULER_LEASE,
    EVICTION_WEBHOOK_CONFIGURATION,
    LEADER_LEASE,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    OPERATOR_LEASE,
    QUEUE_WEBHOOK_CONFIGURATION,
    WEBHOOK_CONFIGURATION,
    WEBHOOK_SECRET,
    Clock,
)
from berth_core.object_lists import RawObject
from berth_descheduler.migration.absent_programs import OPERATOR, SERVICE, Program, why_absent
from berth_descheduler.uninstall.leftovers import (
    build_node_patch,
    build_pod_patch,
    is_nominated,
    is_own_pod,
    is_released,
    marks_of_node,
    marks_of_pod,
)
from berth_kube import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    LEASES,
    MIGRATION_PLANS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    RESERVATION_WINDOWS,
    RESERVATIONS,
    REVOCABLE_ZONES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    ConflictError,
    ForbiddenError,
    InvalidObjectError,
    KubeClient,
    NotFoundError,
    Resource,
    build_return,
    hash_of,
)
from berth_kube.resources import CONFIG_MAPS

_NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
_CERTIFICATES: Final = Resource("cert-manager.io", "v1", "certificates", "Certificate")
_SERVICE_MONITORS: Final = Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
_PROMETHEUS_RULES: Final = Resource("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule")

_FIRST_KINDS: Final = (QUEUES, RESERVATION_WINDOWS, REVOCABLE_ZONES)
_OWN_KINDS: Final = (*_FIRST_KINDS, DESCHEDULER_POLICIES, MIGRATION_PLANS, RESERVATIONS)
_KINDS_OF_WEBHOOKS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
_WEBHOOKS: Final = frozenset({WEBHOOK_CONFIGURATION, QUEUE_WEBHOOK_CONFIGURATION, EVICTION_WEBHOOK_CONFIGURATION})
_ADMISSION_KINDS: Final = (ADMISSION_POLICY_BINDINGS, ADMISSION_POLICIES)
_RELEASE_KINDS: Final = (
    _CERTIFICATES,
    _SERVICE_MONITORS,
    _PROMETHEUS_RULES,
    _NETWORK_POLICIES,
    PDBS,
    SERVICES,
    CONFIG_MAPS,
    ROLE_BINDINGS,
    ROLES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    SERVICE_ACCOUNTS,
)
_TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
_LEASES: Final = frozenset({OPERATOR_LEASE, DESCHEDULER_LEASE, LEADER_LEASE})
_NAMESPACES_OF_KUBERNETES: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_BY_HELM: Final = f"{MANAGED_LABEL}=Helm"
_NAME_OF_RELEASE: Final = "meta.helm.sh/release-name"
_NAMESPACE_OF_RELEASE: Final = "meta.helm.sh/release-namespace"
_POLL_SECONDS: Final = 0.2
_POLICY_SECONDS: Final = 30.0
"""How long a deleted admission policy may go on refusing, until every API server has noticed."""

_CLUSTER_SECONDS: Final = 300.0
"""How long to wait for what Kubernetes itself ends: pods with their grace periods, a namespace, CRDs."""


class RemovalStep(StrEnum):
    """When something goes; in this order."""

    LIVE = "1 end what is live"
    PROGRAMS = "2 stop the programs"
    ADMISSION = "3 webhooks and admission policies"
    MARKS = "4 marks, placeholders and fences"
    RELEASE = "5 the rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is uninstalled, and what is kept."""

    namespace: str
    """Berth's namespace."""

    release: str
    """The name of the helm release; helm itself need not be installed here."""

    keep_crds: bool
    """Whether the CRDs stay, without any object of them."""

    timeout_seconds: float
    """How long to wait for each thing that Berth's programs, or the holders of finalizers, have to do."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something that is removed, or cleared of Berth's marks."""

    step: RemovalStep
    resource: Resource
    namespace: str
    name: str
    marks: tuple[str, ...] = ()
    """What is taken off it; empty where the object itself is deleted."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Removal:
    """Uninstalls Berth; every method can be called again after an interruption."""

    def __init__(
        self, client: KubeClient, clock: Clock, settings: Settings, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._report = report
        self._at_work: dict[Program, bool] = {}

    # What there is

    def items(self) -> Iterator[Item]:
        """Yield all that would be removed, in the order in which it goes; changes nothing."""
        for resource in _OWN_KINDS:
            yield from self._named(RemovalStep.LIVE, resource, self._list(resource))
        yield from self._named(RemovalStep.PROGRAMS, DEPLOYMENTS, self._of_release(DEPLOYMENTS))
        for resource in _KINDS_OF_WEBHOOKS:
            yield from self._named(RemovalStep.ADMISSION, resource, self._webhooks(resource))
        for resource in _ADMISSION_KINDS:
            yield from self._named(RemovalStep.ADMISSION, resource, self._of_release(resource))
        yield from self._marked_items()
        yield from self._named(RemovalStep.MARKS, PRIORITY_CLASSES, self._priority_classes())
        for resource in _RELEASE_KINDS:
            yield from self._named(RemovalStep.RELEASE, resource, self._of_release(resource))
        for resource in (LEASES, SECRETS):
            yield from self._named(RemovalStep.RELEASE, resource, self._in_own_namespace(resource))
        yield from self._named(RemovalStep.RELEASE, NAMESPACES, self._own_namespace())
        if not self._settings.keep_crds:
            yield from self._named(RemovalStep.RELEASE, CRDS, self._crds())

    def why_namespace_stays(self) -> str:
        """Return why Berth's namespace is not deleted, "" if it is."""
        namespace = self._settings.namespace
        if namespace in _NAMESPACES_OF_KUBERNETES:
            return f"the namespace {namespace} stays: it is Kubernetes' own"
        others = [raw_pod["metadata"]["name"] for raw_pod in self._pods_of_others()]
        return f"the namespace {namespace} stays: the pod {others[0]} there is not Berth's" if others else ""

    def _marked_items(self) -> Iterator[Item]:
        for raw_pod in self._list(PODS):
            is_deleted = is_own_pod(raw_pod, self._settings.namespace)
            marks = () if is_deleted else marks_of_pod(raw_pod)
            if marks or is_deleted:
                yield _item(RemovalStep.MARKS, PODS, raw_pod, marks)
        for raw_node in self._list(NODES):
            if marks := marks_of_node(raw_node):
                yield _item(RemovalStep.MARKS, NODES, raw_node, marks)

    def _named(self, step: RemovalStep, resource: Resource, raw_objects: Iterable[RawObject]) -> Iterator[Item]:
        yield from (_item(step, resource, raw) for raw in raw_objects)

    def _list(self, resource: Resource, label_selector: str = "") -> Sequence[RawObject]:
        """Return all objects of a kind, none where the cluster does not serve it."""
        try:
            return self._client.list(resource, label_selector=label_selector).items
        except NotFoundError:
            return ()

    def _of_release(self, resource: Resource) -> list[RawObject]:
        """Return the objects that helm, or another tool from the chart, installed with the release."""
        return [raw for raw in self._list(resource, _BY_HELM) if self._is_of_release(raw)]

    def _is_of_release(self, raw: RawObject) -> bool:
        metadata, settings = raw["metadata"], self._settings
        annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        # Both annotations are what helm itself goes by (checkOwnership in pkg/action/validate.go): releases of one name
        # may be in several namespaces.
        if _NAME_OF_RELEASE in annotations:
            release = (annotations[_NAME_OF_RELEASE], annotations.get(_NAMESPACE_OF_RELEASE))
            return release == (settings.release, settings.namespace)
        is_of_chart = labels.get("helm.sh/chart", "").startswith("berth-")
        return is_of_chart and labels.get("app.kubernetes.io/instance") == settings.release

    def _webhooks(self, resource: Resource) -> list[RawObject]:
        return [raw for raw in self._list(resource) if raw["metadata"]["name"] in _WEBHOOKS or self._is_of_release(raw)]

    def _priority_classes(self) -> Sequence[RawObject]:
        return self._list(PRIORITY_CLASSES, f"{MANAGED_LABEL}={MANAGED_BY_OPERATOR}")

    def _in_own_namespace(self, resource: Resource) -> list[RawObject]:
        """Return the programs' Leases, or the webhook's Secret and helm's records of the release."""
        return [
            raw
            for raw in self._client.list(resource, namespace=self._settings.namespace).items
            if raw["metadata"]["name"] in _LEASES | {WEBHOOK_SECRET}
            or self._is_record_of_helm(raw)
            or self._is_of_release(raw)
        ]

    def _is_record_of_helm(self, raw: RawObject) -> bool:
        labels = raw["metadata"].get("labels") or {}
        return raw.get("type") == "helm.sh/release.v1" and labels.get("name") == self._settings.release

    def _own_namespace(self) -> list[RawObject]:
        namespaces = [raw for raw in self._list(NAMESPACES) if raw["metadata"]["name"] == self._settings.namespace]
        return [] if namespaces and self.why_namespace_stays() else namespaces

    def _pods_of_others(self) -> list[RawObject]:
        """Return the pods in Berth's namespace that are neither placeholders nor fences nor of the chart."""
        return [
            raw_pod
            for raw_pod in self._client.list(PODS, namespace=self._settings.namespace).items
            if not is_own_pod(raw_pod, self._settings.namespace)
            and (raw_pod["metadata"].get("labels") or {}).get("app.kubernetes.io/instance") != self._settings.release
        ]

    def _crds(self) -> list[RawObject]:
        names = {f"{resource.plural}.{resource.group}" for resource in _OWN_KINDS}
        return [raw for raw in self._list(CRDS) if raw["metadata"]["name"] in names]

    # Taking it away

    def carry_out(self) -> None:
        """Remove everything, step by step; raises `KubeError` where the cluster does not let it go."""
        self._end_what_is_live()
        # In the foreground a Deployment stays until its pods are gone, so that a repeated run still finds it.
        self._delete_all(DEPLOYMENTS, self._of_release(DEPLOYMENTS), propagation=True)
        self._wait("the programs' pods have ended", lambda: not self._pods_of_programs(), _CLUSTER_SECONDS)
        for resource in _KINDS_OF_WEBHOOKS:
            self._delete_all(resource, self._webhooks(resource))
        for resource in _ADMISSION_KINDS:
            self._delete_all(resource, self._of_release(resource))
        self._take_marks_off()
        self._delete_all(PRIORITY_CLASSES, self._priority_classes())
        for resource in _RELEASE_KINDS:
            self._delete_all(resource, self._of_release(resource))
        for resource in (LEASES, SECRETS):
            self._delete_all(resource, self._in_own_namespace(resource))
        if reason := self.why_namespace_stays():
            self._report(reason)
        self._delete_all(NAMESPACES, self._own_namespace())
        # While a kind is going, the namespace's deletion does not know whether objects of it are left, and waits.
        self._wait("the namespace is gone", lambda: not self._own_namespace(), _CLUSTER_SECONDS)
        if not self._settings.keep_crds:
            self._delete_all(CRDS, self._crds())
            self._wait("the kinds are gone", lambda: not self._crds(), _CLUSTER_SECONDS)

    def _end_what_is_live(self) -> None:
        for resource in _FIRST_KINDS:
            self._delete_all(resource, self._list(resource))
        self._wait_for_registration(QUEUE_WEBHOOK_CONFIGURATION)
        for resource in (DESCHEDULER_POLICIES, MIGRATION_PLANS, RESERVATIONS):
            self._delete_all(resource, self._list(resource))
            if resource is MIGRATION_PLANS and self._released_pods() and self._is_at_work(SERVICE):
                self._wait("pods of surge moves are back in their ReplicaSets", lambda: not self._released_pods())
        self._wait_for_registration(WEBHOOK_CONFIGURATION)
        for resource in _OWN_KINDS:
            is_gone = self._wait(f"no {resource.plural} are left", lambda kind=resource: not self._list(kind))  # type: ignore[misc]
            if not is_gone:
                self._free_of_finalizers(resource)

    def _is_at_work(self, program: Program) -> bool:
        """Return whether a program runs; for one that may be restarting this takes a while."""
        if program not in self._at_work:
            namespace = self._settings.namespace
            self._at_work[program] = not why_absent(self._client, self._clock, program, namespace=namespace)
        return self._at_work[program]

    def _wait_for_registration(self, name: str) -> None:
        """Wait until the operator, if it runs, has withdrawn a webhook."""

        def is_gone() -> bool:
            return all(raw["metadata"]["name"] != name for raw in self._list(MUTATING_WEBHOOKS))

        if not is_gone() and self._is_at_work(OPERATOR):
            self._wait(f"the operator has taken back its webhook {name}", is_gone)

    def _free_of_finalizers(self, resource: Resource) -> None:
        """Release objects that are being deleted from finalizers whose holder does not run any more."""
        for raw in self._list(resource):
            metadata = raw["metadata"]
            if metadata.get("deletionTimestamp") and metadata.get("finalizers"):
                name, namespace = _where(raw)
                self._report(f"taking the finalizers off {resource.describe(name, namespace=namespace)}")
                self._patch(resource, raw, lambda _: {"metadata": {"finalizers": None}})

    def _pods_of_programs(self) -> list[RawObject]:
        labels = f"app.kubernetes.io/instance={self._settings.release},app.kubernetes.io/component"
        raw_pods = self._client.list(PODS, namespace=self._settings.namespace, label_selector=labels).items
        return [raw_pod for raw_pod in raw_pods if raw_pod["status"].get("phase") not in _TERMINAL_PHASES]

    def _released_pods(self) -> list[RawObject]:
        return [raw_pod for raw_pod in self._list(PODS) if is_released(raw_pod)]

    def _take_marks_off(self) -> None:
        self._delete_all(PODS, self._own_pods())
        self._wait("placeholders and fences have ended", lambda: not self._own_pods(), _CLUSTER_SECONDS)
        for raw_pod in self._list(PODS):
            if not marks_of_pod(raw_pod):
                continue
            # The node is in the status, which the API server leaves as it is in a patch of the pod itself
            # (`podStrategy.PrepareForUpdate`).
            if is_nominated(raw_pod):
                self._patch(PODS, raw_pod, lambda _: {"status": {"nominatedNodeName": None}}, subresource="status")
            if is_released(raw_pod):
                self._patch(PODS, raw_pod, self._build_return)
            self._patch(PODS, raw_pod, build_pod_patch)
        for raw_node in self._list(NODES):
            if marks_of_node(raw_node):
                self._patch(NODES, raw_node, build_node_patch)

    def _own_pods(self) -> list[RawObject]:
        return [raw_pod for raw_pod in self._list(PODS) if is_own_pod(raw_pod, self._settings.namespace)]

    def _build_return(self, raw_pod: RawObject) -> dict[str, Any]:
        """Return the patch that gives a pod back to its ReplicaSet, by the label by which that selects its pods."""
        metadata = raw_pod["metadata"]
        owners = [owner for owner in metadata.get("ownerReferences") or () if owner["kind"] == REPLICA_SETS.kind]
        for owner in owners:
            with suppress(NotFoundError):
                replica_set = self._client.get(REPLICA_SETS, owner["name"], namespace=metadata["namespace"])
                return build_return(raw_pod, hash_of(replica_set))
        return build_return(raw_pod, "")

    # Calls that are made again

    def _patch(
        self, resource: Resource, raw: RawObject, build: Callable[[RawObject], dict[str, Any]], subresource: str = ""
    ) -> None:
        """Patch an object; try again while it changes, or while a deleted admission policy still guards it."""
        namespace, name = raw["metadata"].get("namespace"), raw["metadata"]["name"]
        deadline = self._clock.monotonic() + max(self._settings.timeout_seconds, _POLICY_SECONDS)
        while True:
            try:
                current = self._client.get(resource, name, namespace=namespace)
                self._client.merge_patch(resource, name, build(current), namespace=namespace, subresource=subresource)
            except NotFoundError:
                return
            # A ValidatingAdmissionPolicy refuses as Invalid unless it names another reason (KEP-3488), and each API
            # server learns by its own watch that the policy is gone.
            except (ConflictError, ForbiddenError, InvalidObjectError):
                if self._clock.monotonic() >= deadline:
                    raise
                self._clock.sleep(_POLL_SECONDS)
            else:
                return

    def _delete_all(self, resource: Resource, raw_objects: Sequence[RawObject], *, propagation: bool = False) -> None:
        for raw in raw_objects:
            name, namespace = _where(raw)
            try:
                self._client.delete(
                    resource, name, namespace=namespace, propagation="Foreground" if propagation else None
                )
            except NotFoundError:
                continue
        if raw_objects:
            self._report(f"deleted {len(raw_objects)} of {resource.plural}")

    def _wait(self, claim: str, is_reached: Callable[[], bool], seconds: float | None = None) -> bool:
        """Return whether a state was reached in time; later steps clean up what was not."""
        seconds = self._settings.timeout_seconds if seconds is None else seconds
        deadline = self._clock.monotonic() + seconds
        while not is_reached():
            if self._clock.monotonic() >= deadline:
                self._report(f"not within {seconds:g} s: {claim}; going on without")
                return False
            self._clock.sleep(_POLL_SECONDS)
        return True


def _where(raw: RawObject) -> tuple[str, str | None]:
    return raw["metadata"]["name"], raw["metadata"].get("namespace")


def _item(step: RemovalStep, resource: Resource, raw: RawObject, marks: tuple[str, ...] = ()) -> Item:
    name, namespace = _where(raw)
    return Item(step, resource, namespace or "", name, marks)
