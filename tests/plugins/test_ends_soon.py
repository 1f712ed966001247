"""The plugin `EndsSoon` keeps pods that say that they end within its time, and no others."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from berth_core import InputError, Pod, Snapshot
from berth_descheduler.framework import ClusterView, RefusalReason
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.plugins.ends_soon import EndsSoon
from builders import pod, volcano_pod_group

NOW: Final = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def running(
    *, started: str = "2026-11-22T11:00:00Z", runtime: str = "", group: str = "", deadline: int | None = None
) -> Pod:
    notes = {"volcano.sh/maximum-runtime": runtime} if runtime else {}
    notes |= {"scheduling.k8s.io/group-name": group} if group else {}
    made = pod("web-0", node="node-a", annotations=notes, active_deadline_seconds=deadline)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, start_time=started))


def reasons(
    one: Pod, args: dict[str, Any] | None = None, *, group_runtime: str = "2h", now: datetime | None = NOW
) -> list[str]:
    """Return why the pod stays, by the filter and right before the eviction."""
    group = volcano_pod_group("train")
    notes = {"volcano.sh/maximum-runtime": group_runtime}
    group = msgspec.structs.replace(group, metadata=msgspec.structs.replace(group.metadata, annotations=notes))
    view = ClusterView.of(Snapshot(nodes=(), pods=(one,), pod_groups=(group,)), now)
    plugin = EndsSoon.parse(args or {})
    found = [
        [refusal.reason for refusal in kept(one)] for kept in (plugin.filter(view), plugin.pre_eviction_filter(view))
    ]
    assert found[0] == found[1]
    return [reason.value for reason in found[0]]


CASES: Final[dict[str, tuple[Pod, dict[str, Any], bool]]] = {
    "a pod that says nothing": (running(), {}, False),
    "one that ends in ten minutes": (running(runtime="70m"), {}, True),
    "one that ends in an hour": (running(runtime="2h"), {}, False),
    "one that ends in an hour, of a policy that looks two hours ahead": (running(runtime="2h"), {"within": "2h"}, True),
    "one that has outlived its time": (running(runtime="30m"), {}, False),
    "one with a deadline in ten minutes": (running(deadline=4_200), {}, True),
    "one whose group ends in an hour": (running(group="train"), {"within": "61m"}, True),
    "one of another group": (running(group="other"), {"within": "61m"}, False),
    "one whose runtime cannot be read": (running(runtime="soon"), {}, False),
}


@pytest.mark.parametrize(("one", "args", "want_kept"), CASES.values(), ids=CASES)
def test_a_pod_that_ends_soon_is_kept(one: Pod, args: dict[str, Any], *, want_kept: bool) -> None:
    assert reasons(one, args) == ([RefusalReason.ENDS_SOON.value] if want_kept else [])


def test_without_a_time_to_count_from_nothing_is_kept() -> None:
    assert not reasons(running(runtime="70m"), now=None)


@pytest.mark.parametrize("args", [{"within": "soon"}, {"within": "0s"}, {"within": "-1h"}, {"after": "1h"}], ids=str)
def test_wrong_arguments_are_refused_with_their_name(args: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="after" if "after" in args else "within"):
        EndsSoon.parse(args)


def test_a_policy_can_name_it() -> None:
    assert installed_plugins().make("EndsSoon", {"within": "1h"}) == EndsSoon.parse({"within": "1h"})
