"""What `berth doctor` finds, over HTTP: watched while it is asked for, and shown as far as the caller may see it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec
import pytest

import berth_kube.resources
from berth_core import Taint
from berth_core.labels import (
    DRAINING_TAINT,
    EVICTIONS_LABEL,
    EVICTIONS_SURGE,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    QUEUE_GATE,
    REVOCABLE_ZONE_LABEL,
)
from berth_core.names import DESCHEDULER_LEASE, EVICTION_WEBHOOK_CONFIGURATION
from berth_descheduler.api.trouble_watch import TroubleWatch, Watched
from berth_descheduler.doctor import NEEDED_RIGHTS, look_as_far_as_allowed, rights_asked_for, rights_to
from berth_kube.client import KubeClient
from berth_kube.errors import ForbiddenError
from berth_kube.resources import (
    LEASES,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESERVATION_WINDOWS,
    REVOCABLE_ZONES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from berth_sandbox.invariants import BOUND_SECONDS, Invariant, Violation
from builders import NOON, FakeClock, gated_queue, namespace, node, pod
from descheduler.fake_cluster import call, failure
from descheduler.rest_server import READER, ReviewingCluster, add_plan, ask, hurried, populated, quick, serving

OWN: Final = "berth-system"
DRAINING: Final = Taint(key=DRAINING_TAINT, effect="NoSchedule")
EVERY_KIND: Final = tuple(value for value in vars(berth_kube.resources).values() if isinstance(value, Resource))
FURTHER: Final = sorted({access.resource.plural for access in rights_asked_for(())})


def forbid(cluster: ReviewingCluster, verb: str, resource: Resource) -> None:
    """Take a right from the service."""
    cluster.faults[f"{verb} {resource.plural}"] = ForbiddenError(call(verb, resource, ""), failure(403))


@pytest.fixture
def cluster() -> ReviewingCluster:
    """A cluster in which nothing is amiss, whose admin may read everything."""
    healthy = populated()
    healthy.start_operator()
    healthy.rights["admin"] |= {(access.verb, access.resource.plural) for access in rights_asked_for(())}
    return healthy


@pytest.fixture
def url(cluster: ReviewingCluster) -> Iterator[str]:
    with serving(cluster) as address:
        yield address


def put_node(cluster: ReviewingCluster, name: str, **spec: Any) -> None:  # noqa: ANN401 - as builders.node takes it
    cluster.add(NODES, msgspec.to_builtins(node(name, **spec)))


def test_a_cluster_in_which_all_is_well_has_no_findings(url: str) -> None:
    answer = ask("GET", f"{url}/v1/findings").json()
    assert (answer["items"], answer["missingRights"]) == ([], [])


def test_a_finding_has_its_object_its_explanation_and_what_to_do(url: str, cluster: ReviewingCluster) -> None:
    put_node(cluster, "lent", labels={REVOCABLE_ZONE_LABEL: "gone"})
    (finding,) = ask("GET", f"{url}/v1/findings").json()["items"]
    assert [finding[key] for key in ("invariant", "kind", "namespace", "name", "detail", "mayPass")] == [
        "ZoneUnknown",
        "node",
        "",
        "lent",
        "its label names 'gone'",
        False,
    ]
    assert all(finding[key] for key in ("what", "why", "toDo"))
    assert finding["command"].startswith("kubectl label node lent ")


def test_a_finding_that_berth_may_still_mend_is_marked(url: str, cluster: ReviewingCluster) -> None:
    put_node(cluster, "fenced", taints=[DRAINING])
    (finding,) = ask("GET", f"{url}/v1/findings").json()["items"]
    assert (finding["invariant"], finding["mayPass"]) == ("DrainingLeft", True)


@pytest.mark.parametrize("missing", NEEDED_RIGHTS, ids=str)
def test_who_may_not_list_what_most_findings_are_about_is_told_so(
    url: str,
    cluster: ReviewingCluster,
    missing: Any,  # noqa: ANN401 - an Access
) -> None:
    cluster.rights["admin"].discard((missing.verb, missing.resource.plural))
    answer = ask("GET", f"{url}/v1/findings")
    assert answer.status_code == 403
    assert str(missing) in answer.json()["detail"]


def test_a_finding_that_needs_a_right_of_which_the_caller_has_none_is_left_out(
    url: str, cluster: ReviewingCluster
) -> None:
    put_node(cluster, "lent", labels={REVOCABLE_ZONE_LABEL: "gone"}, taints=[DRAINING])
    cluster.rights["admin"] -= {("list", "revocablezones"), ("list", "events")}
    answer = ask("GET", f"{url}/v1/findings").json()
    assert [finding["invariant"] for finding in answer["items"]] == ["DrainingLeft"]
    assert answer["missingRights"] == ["list events", "list revocablezones"]
    assert ask("GET", f"{url}/v1/findings", token=READER).status_code == 403


def test_an_object_that_cannot_be_read_is_named_only_to_those_who_may_list_its_kind(
    url: str, cluster: ReviewingCluster
) -> None:
    cluster.add(PDBS, {"metadata": {"name": "odd", "namespace": "shop", "unreadable": "its spec is 1"}})
    answer = ask("GET", f"{url}/v1/findings").json()
    assert (answer["items"], answer["missingRights"]) == ([], ["list poddisruptionbudgets"])
    cluster.rights["admin"].add(("list", "poddisruptionbudgets"))
    with serving(cluster) as another:
        (finding,) = ask("GET", f"{another}/v1/findings").json()["items"]
    assert (finding["invariant"], finding["namespace"], finding["name"]) == ("ObjectUnreadable", "shop", "odd")


def test_what_the_service_itself_may_not_read_is_said_and_the_rest_is_shown(
    url: str, cluster: ReviewingCluster
) -> None:
    put_node(cluster, "fenced", taints=[DRAINING])
    forbid(cluster, "list", LEASES)
    forbid(cluster, "list", RESERVATION_WINDOWS)
    answer = ask("GET", f"{url}/v1/findings").json()
    assert [finding["invariant"] for finding in answer["items"]] == ["DrainingLeft"]
    assert answer["missingRights"] == ["list leases", "list reservationwindows"]


def test_the_cluster_is_looked_at_once_for_many_readers(cluster: ReviewingCluster) -> None:
    with serving(cluster, hurried(quick(), findings_seconds=600)) as url:
        for _ in range(3):
            assert ask("GET", f"{url}/v1/findings").ok
    assert sum(call.verb == "list" and call.plural == LEASES.plural for call in cluster.calls) == 1


# --- looks one after the other ----------------------------------------------------------------------------------------


def looks(cluster: ReviewingCluster, act: Callable[[Callable[[], Watched], FakeClock], None]) -> None:
    """Have looks taken by a clock that stands still between them."""
    clock = FakeClock(NOON)
    watch = TroubleWatch(cast("KubeClient", cluster), clock, hurried(quick(), findings_seconds=10))
    try:
        act(lambda: asyncio.run(watch.watched()), clock)
    finally:
        watch.close()


def test_a_finding_stands_once_every_look_has_shown_it_for_as_long_as_berth_may_need(
    cluster: ReviewingCluster,
) -> None:
    put_node(cluster, "fenced", taints=[DRAINING])

    def act(look: Callable[[], Watched], clock: FakeClock) -> None:
        may_pass = []
        for _ in range(4):
            may_pass += look().may_pass_by_violation.values()
            clock.advance(BOUND_SECONDS[Invariant.DRAINING_LEFT] / 3)
        assert may_pass == [True, True, True, False]

    looks(cluster, act)


def test_a_finding_that_passes_is_gone_with_the_next_look(cluster: ReviewingCluster) -> None:
    put_node(cluster, "fenced", taints=[DRAINING])

    def act(look: Callable[[], Watched], clock: FakeClock) -> None:
        assert len(look().may_pass_by_violation) == 1
        put_node(cluster, "fenced")
        clock.advance(10)
        assert not look().may_pass_by_violation

    looks(cluster, act)


def test_looks_far_apart_do_not_tell_that_a_finding_lasted(cluster: ReviewingCluster) -> None:
    put_node(cluster, "fenced", taints=[DRAINING])

    def act(look: Callable[[], Watched], clock: FakeClock) -> None:
        look()
        clock.advance(3600)
        assert list(look().may_pass_by_violation.values()) == [True]

    looks(cluster, act)


# --- rights -----------------------------------------------------------------------------------------------------------


def wholesome(cluster: ReviewingCluster) -> None:
    """Add what is in order only as long as every kind is known."""
    put_node(cluster, "lent", labels={REVOCABLE_ZONE_LABEL: "rz1"})
    cluster.add(REVOCABLE_ZONES, {"metadata": {"name": "rz1"}, "spec": {}})
    cluster.add(QUEUES, msgspec.to_builtins(gated_queue("ml")))
    labels = {"team": "ml", EVICTIONS_LABEL: EVICTIONS_SURGE}
    cluster.add(NAMESPACES, msgspec.to_builtins(namespace("ml", labels=labels)))
    cluster.add(PODS, msgspec.to_builtins(pod("queued", namespace="ml", gates=[QUEUE_GATE])))
    webhooks = [{"clientConfig": {"url": "https://operator:9443/"}}]
    cluster.add(VALIDATING_WEBHOOKS, {"metadata": {"name": EVICTION_WEBHOOK_CONFIGURATION}, "webhooks": webhooks})
    managed = {MANAGED_LABEL: MANAGED_BY_OPERATOR}
    cluster.add(PRIORITY_CLASSES, {"metadata": {"name": "placeholders", "labels": managed}, "value": 1})
    add_plan(cluster, "plan-running", phase="Running")
    operator = next(iter(cluster.objects[LEASES.plural].values()))
    cluster.add(LEASES, {**operator, "metadata": {"name": DESCHEDULER_LEASE, "namespace": OWN}})


@pytest.mark.parametrize("forbidden", FURTHER)
def test_a_kind_that_may_not_be_read_leads_to_no_finding(cluster: ReviewingCluster, forbidden: str) -> None:
    wholesome(cluster)
    client = cast("KubeClient", cluster)
    assert look_as_far_as_allowed(client, OWN, NOON).violations == ()
    (resource,) = {access.resource for access in rights_asked_for(()) if access.resource.plural == forbidden}
    for verb in ("list", "get"):
        forbid(cluster, verb, resource)
    assert look_as_far_as_allowed(client, OWN, NOON).violations == ()


@pytest.mark.parametrize("resource", [access.resource for access in NEEDED_RIGHTS], ids=lambda kind: kind.plural)
def test_without_the_kinds_that_most_findings_are_about_nothing_is_claimed(
    cluster: ReviewingCluster, resource: Resource
) -> None:
    forbid(cluster, "list", resource)
    with pytest.raises(ForbiddenError):
        look_as_far_as_allowed(cast("KubeClient", cluster), OWN, NOON)


@pytest.mark.parametrize("resource", EVERY_KIND, ids=lambda kind: f"{kind.group}/{kind.plural}")
def test_the_right_to_an_unreadable_object_is_that_to_list_its_kind(resource: Resource) -> None:
    (right,) = rights_to(Violation(Invariant.OBJECT_UNREADABLE, f"{resource.name_for_kubectl} some/name", "why"))
    assert (right.verb, right.resource.group, right.resource.plural) == ("list", resource.group, resource.plural)
