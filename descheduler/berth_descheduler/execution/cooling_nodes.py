"""The mark of nodes that rest: by it other deschedulers leave alone what a plan has just moved pods off or onto.

All facts are on the node, so that a mark is taken off in time whoever put it on, and whoever is there then.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog

from berth_core.clock import Clock, format_timestamp, read_timestamp
from berth_core.errors import BerthError
from berth_core.labels import (
    COOLING_LABEL,
    COOLING_UNTIL_ANNOTATION,
    LAST_DEFRAGMENTED_ANNOTATION,
    LAST_MOVED_ANNOTATION,
)
from berth_core.objects import Node
from berth_descheduler import log_keys
from berth_descheduler.execution.freed_nodes import change_node
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import NODES

_LOG = structlog.get_logger(__name__)
_TRUE = "true"


def mark_moved(
    client: KubeClient, clock: Clock, *, sources: Iterable[str], targets: Iterable[str], cool_down: timedelta
) -> tuple[str, ...]:
    """Note on nodes that pods were moved off or onto them, and return those noted; failures are only logged."""
    left, reached = frozenset(sources), frozenset(targets)
    noted = []
    for node in sorted(left | reached):
        note = partial(_moved, now=clock.now(), cool_down=cool_down, is_source=node in left)
        try:
            if cool_down:
                change_node(client, node, note)
            else:  # nothing on the node counts for what is written
                client.merge_patch(NODES, node, note({}))
        except BerthError as error:
            _LOG.warning(log_keys.CALL_FAILED, **{log_keys.KEY_NODE: node, log_keys.KEY_ERROR: str(error)})
            continue
        noted.append(node)
    return tuple(noted)


def sweep_cooling_nodes(client: KubeClient, clock: Clock) -> tuple[str, ...]:
    """Take the mark off nodes that have rested, and return them; what cannot be changed is the next sweep's."""
    changed = []
    for node in client.list(NODES, label_selector=COOLING_LABEL, type=Node).items:
        name = node.metadata.name
        try:
            if change_node(client, name, lambda raw: _rested(raw, clock.now())):
                changed.append(name)
        except NotFoundError:
            continue
        except BerthError as error:
            _LOG.warning(log_keys.UNMARK_FAILED, **{log_keys.KEY_NODE: name, log_keys.KEY_ERROR: str(error)})
    return tuple(changed)


def cooling_until(annotations: Mapping[str, str]) -> datetime | None:
    """Return until when a node rests by its annotations, None where they do not say it."""
    return read_timestamp(annotations.get(COOLING_UNTIL_ANNOTATION))


def _moved(raw: Mapping[str, Any], *, now: datetime, cool_down: timedelta, is_source: bool) -> dict[str, Any]:
    """Return the patch of a node off or onto which pods were moved; a rest that lasts longer stays."""
    at = format_timestamp(now)
    annotations = {LAST_MOVED_ANNOTATION: at, **({LAST_DEFRAGMENTED_ANNOTATION: at} if is_source else {})}
    if not cool_down:
        return {"metadata": {"annotations": annotations}}
    before = cooling_until(raw["metadata"].get("annotations") or {})
    annotations[COOLING_UNTIL_ANNOTATION] = format_timestamp(max(now + cool_down, before or now))
    return {"metadata": {"annotations": annotations, "labels": {COOLING_LABEL: _TRUE}}}


def _rested(raw: Mapping[str, Any], now: datetime) -> dict[str, Any] | None:
    """Return the patch that takes the mark off a node, None while it rests or where there is none."""
    metadata = raw["metadata"]
    until = cooling_until(metadata.get("annotations") or {})
    if COOLING_LABEL not in (metadata.get("labels") or {}) or (until is not None and until > now):
        return None
    return {"metadata": {"annotations": {COOLING_UNTIL_ANNOTATION: None}, "labels": {COOLING_LABEL: None}}}
