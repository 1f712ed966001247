"""What the LimitRanges of a namespace would refuse as a pod is refused as a Reservation, in the API server's words."""
# ruff: noqa: ANN401 - fields of API objects are anything

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from berth_core import PodSpec
from berth_kube.watch_items import Listed
from berth_operator.quota.limit_range import LimitRange, why_out_of_range
from berth_operator.quota.limits import LimitSettings, NamespaceLimit
from berth_operator.reservation.act.quota_admission import QuotaAdmission
from berth_operator.reservation.store.cluster_rules import ClusterRules
from handover_builders import place


def limit_range(kind: str = "Container", name: str = "range", **item: Any) -> LimitRange:
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"limits": [{"type": kind, **item}]}}
    return msgspec.convert(body, LimitRange)


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": requests or {}, "limits": limits or {}}}


def spec(*containers: dict[str, Any], **rest: Any) -> PodSpec:
    return msgspec.convert({"containers": containers, **rest}, PodSpec)


@dataclass(frozen=True)
class Case:
    ranges: tuple[LimitRange, ...]
    spec: PodSpec
    want: str = ""


ONE_CPU = container({"cpu": "1"}, {"cpu": "1"})
CASES = {
    "nothing is limited": Case((limit_range(),), spec(container())),
    "other kinds of objects": Case((limit_range("PersistentVolumeClaim", min={"storage": "1Gi"}),), spec(container())),
    "as much as is allowed": Case((limit_range(max={"cpu": "1"}),), spec(ONE_CPU)),
    "a limit above the most": Case(
        (limit_range(max={"cpu": "500m"}),), spec(ONE_CPU), "maximum cpu usage per Container is 500m, but limit is 1"
    ),
    "no limit where there is a most": Case(
        (limit_range(max={"cpu": "2"}),), spec(container({"cpu": "1"})),
        "maximum cpu usage per Container is 2. No limit is specified",
    ),
    "no limit where there is a most and a default": Case(
        (limit_range(max={"cpu": "2"}, default={"cpu": "2"}),), spec(container({"cpu": "1"}))
    ),
    "a default of another range": Case(
        (limit_range(max={"cpu": "2"}), limit_range(name="other", default={"cpu": "2"})), spec(container({"cpu": "1"}))
    ),
    "a request above a default limit": Case(
        (limit_range(max={"cpu": "2"}, default={"cpu": "1"}),), spec(container({"cpu": "3"})),
        "maximum cpu usage per Container is 2, but request is 3",
    ),
    "a request below the least": Case(
        (limit_range(min={"memory": "1Gi"}),), spec(container({"memory": "1000Mi"})),
        "minimum memory usage per Container is 1Gi, but request is 1000Mi",
    ),
    "no request where there is a least": Case(
        (limit_range(min={"cpu": "1m"}),), spec(container()),
        "minimum cpu usage per Container is 1m. No request is specified",
    ),
    "a limit that stands for the request": Case((limit_range(min={"cpu": "1"}),), spec(container(limits={"cpu": "1"}))),
    "a default request": Case((limit_range(min={"cpu": "1"}, defaultRequest={"cpu": "1"}),), spec(container())),
    "a limit of its own goes before a default request": Case(
        (limit_range(max={"cpu": "4"}, defaultRequest={"cpu": "5"}),), spec(container(limits={"cpu": "2"}))
    ),
    "an init container": Case(
        (limit_range(max={"cpu": "1"}),), spec(ONE_CPU, initContainers=[container({"cpu": "2"}, {"cpu": "2"})]),
        "maximum cpu usage per Container is 1, but limit is 2",
    ),
    "together more than a pod may": Case(
        (limit_range("Pod", max={"cpu": "1500m"}),), spec(ONE_CPU, ONE_CPU),
        "maximum cpu usage per Pod is 1500m, but limit is 2",
    ),
    "each as much as a pod may, one after the other": Case(
        (limit_range("Pod", max={"cpu": "1"}),), spec(ONE_CPU, initContainers=[ONE_CPU])
    ),
    "together less than a pod must": Case(
        (limit_range("Pod", min={"cpu": "3"}),), spec(ONE_CPU, ONE_CPU),
        "minimum cpu usage per Pod is 3, but request is 2",
    ),
    "a limit too far above the request": Case(
        (limit_range(maxLimitRequestRatio={"cpu": "2"}),), spec(container({"cpu": "1"}, {"cpu": "3"})),
        "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
    ),
    "a limit as far above the request as is allowed": Case(
        (limit_range(maxLimitRequestRatio={"cpu": "1500m"}),), spec(container({"cpu": "2"}, {"cpu": "3"}))
    ),
    "a ratio without a limit": Case(
        (limit_range(maxLimitRequestRatio={"cpu": "2"}),), spec(container({"cpu": "1"})),
        "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
    ),
    "a ratio without a request": Case(
        (limit_range(maxLimitRequestRatio={"cpu": "2"}),), spec(container()),
        "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
    ),
    "a range that cannot be read": Case(
        (limit_range(max={"cpu": "?"}),), spec(ONE_CPU), "maximum cpu usage per Container is ?, but limit is 1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_template_is_held_against(case: Case) -> None:
    want = f"{case.want} (LimitRange range)" if case.want else ""
    assert why_out_of_range(case.ranges, case.spec) == want


@pytest.mark.parametrize(("namespace", "is_refused"), [("default", True), ("elsewhere", False)])
def test_a_reservation_is_refused_by_the_ranges_of_its_own_namespace(namespace: str, is_refused: bool) -> None:  # noqa: FBT001 - what the case wants
    found = limit_range("Pod", min={"cpu": "1000"})
    found = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, namespace=namespace))
    rules = ClusterRules()
    rules.limit_ranges.take(Listed((found,), "1"))
    allowances = QuotaAdmission(LimitSettings(default=NamespaceLimit(slots=None, share_percent=None)), rules)
    assert bool(allowances.admit(place())) is is_refused
