"""Marks the nodes that a plan has just moved pods off or onto, so that other deschedulers leave them alone for a while.

All facts are on the node, so any process can remove any mark in time.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog

from berth_core import (
    COOLING_LABEL,
    COOLING_UNTIL_ANNOTATION,
    LAST_DEFRAGMENTED_ANNOTATION,
    LAST_MOVED_ANNOTATION,
    BerthError,
    Clock,
    Node,
    format_timestamp,
    read_timestamp,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.nodes.writes import change_node
from berth_kube import NODES, KubeClient, NotFoundError

_LOG = structlog.get_logger(__name__)


_TRUE = "true"


def mark_moved(
    client: KubeClient, clock: Clock, *, sources: Iterable[str], targets: Iterable[str], cool_down: timedelta
) -> tuple[str, ...]:
    """Record on nodes that pods were moved off or onto them, and return those written; failures are only logged."""
    source_nodes, target_nodes = frozenset(sources), frozenset(targets)
    marked_nodes = []
    for node in sorted(source_nodes | target_nodes):
        build_patch = partial(_build_mark, now=clock.now(), cool_down=cool_down, is_source=node in source_nodes)
        try:
            if cool_down:
                change_node(client, node, build_patch)
            else:  # the patch does not depend on what is on the node
                client.merge_patch(NODES, node, build_patch({}))
        except BerthError as error:
            _LOG.warning(telemetry.CALL_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
            continue
        marked_nodes.append(node)
    return tuple(marked_nodes)


def sweep_cooling_nodes(client: KubeClient, clock: Clock, nodes: Iterable[Node]) -> tuple[str, ...]:
    """Unmark the nodes whose cool-down is over, and return those written; the next sweep retries what fails."""
    changed_nodes = []
    for node in nodes:
        node_name = node.metadata.name
        if not _is_rested(node.metadata.labels, node.metadata.annotations, clock.now()):
            continue
        try:
            if change_node(client, node_name, lambda raw_node: _build_unmark(raw_node, clock.now())):
                changed_nodes.append(node_name)
        # A node that was deleted, as autoscalers do, takes its marks with it.
        except NotFoundError:
            continue
        except BerthError as error:
            _LOG.warning(telemetry.UNMARK_FAILED, **{telemetry.KEY_NODE: node_name, telemetry.KEY_ERROR: str(error)})
    return tuple(changed_nodes)


def cooling_until(annotations: Mapping[str, str]) -> datetime | None:
    """Return the end of a node's cool-down by its annotations, None without a readable one."""
    return read_timestamp(annotations.get(COOLING_UNTIL_ANNOTATION))


def _build_mark(raw: Mapping[str, Any], *, now: datetime, cool_down: timedelta, is_source: bool) -> dict[str, Any]:
    """Return the patch that begins a node's cool-down, or prolongs one; it shortens none."""
    timestamp = format_timestamp(now)
    annotations = {LAST_MOVED_ANNOTATION: timestamp, **({LAST_DEFRAGMENTED_ANNOTATION: timestamp} if is_source else {})}
    if not cool_down:
        return {"metadata": {"annotations": annotations}}
    cooling_before = cooling_until(raw["metadata"].get("annotations") or {})
    # Policies with different cool-downs may move pods off one node: the longest counts.
    annotations[COOLING_UNTIL_ANNOTATION] = format_timestamp(max(now + cool_down, cooling_before or now))
    return {"metadata": {"annotations": annotations, "labels": {COOLING_LABEL: _TRUE}}}


def _build_unmark(raw: Mapping[str, Any], now: datetime) -> dict[str, Any] | None:
    """Return the patch that removes a node's mark, None during its cool-down or without a mark."""
    metadata = raw["metadata"]
    if not _is_rested(metadata.get("labels") or {}, metadata.get("annotations") or {}, now):
        return None
    return {"metadata": {"annotations": {COOLING_UNTIL_ANNOTATION: None}, "labels": {COOLING_LABEL: None}}}


def _is_rested(labels: Mapping[str, str], annotations: Mapping[str, str], now: datetime) -> bool:
    """Return whether a node is marked and its cool-down is over."""
    until = cooling_until(annotations)
    return COOLING_LABEL in labels and (until is None or until <= now)
