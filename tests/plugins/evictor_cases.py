"""The builders with which the tests ask an evictor about a pod, all of Berth's rules included."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace as with_fields

from berth_core import Pod
from berth_core.clock import format_timestamp
from berth_core.snapshot import Snapshot
from berth_core.storage import PersistentVolumeClaim
from berth_descheduler.framework.enabled_plugins import Enabled, PluginSet
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.planner.evictability import Evictability
from berth_descheduler.plugins.default_evictor import DefaultEvictor
from builders import NOON, claim, pod
from planner_settings import plugin_set

AN_HOUR_AGO = format_timestamp(NOON - timedelta(hours=1))


def running(*, started: str | None = None, **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    """A pod of an app that runs on a node since some time."""
    made = pod(**{"node": "node-a", "labels": {"app": "web"}, **rest})
    return with_fields(made, status=with_fields(made.status, start_time=started))


def stored(name: str, storage_class: str) -> PersistentVolumeClaim:
    """A claim of a storage class."""
    made = claim(name)
    return with_fields(made, spec=with_fields(made.spec, storage_class_name=storage_class))


def only(evictor: DefaultEvictor) -> PluginSet:
    """A set whose only filter is an evictor."""
    return plugin_set(filters=(Enabled("DefaultEvictor", evictor),))


def reasons(
    pod: Pod, args: dict[str, Any], snapshot: Snapshot | None = None, *, now: datetime | None = NOON
) -> tuple[RefusalReason, ...]:
    """All reasons for which a pod stays, by the arguments alone."""
    view = ClusterView.of(snapshot or Snapshot(pods=(pod,)), now)
    return tuple(one.reason for one in only(DefaultEvictor.parse(args)).refusing(view)(pod))


def all_reasons(pod: Pod, args: dict[str, Any], snapshot: Snapshot) -> tuple[RefusalReason, ...]:
    """All reasons for which a pod stays, those included that no argument switches off."""
    hard: Sequence[Any] = Evictability(snapshot).refusals(pod)
    return (*(one.reason for one in hard), *reasons(pod, args, snapshot))
