"""The stages by which kwok plays the kubelets, at the pace of a sandbox."""

import importlib.resources
import json
from textwrap import indent
from typing import Any, Final, assert_never

import yaml

from berth_core import PLACEHOLDER_IMAGE
from berth_sandbox.settings import Pace

_NODES: Final = "nodes.yaml"
_QUICK: Final = "quick.yaml"
_REAL_STATUSES: Final = "real.yaml"
_REAL_PARTS: Final = "real.tpl"
_REAL_DECISIONS: Final = "real.jq"
_DOCUMENT: Final = "---\n"
_LAST: Final = frozenset({"pod-ended", "pod-killed", "pod-removed"})
"""Steps after which the kubelet deletes the pod."""
_ROUGHLY: Final = 'if .metadata.deletionTimestamp then "Terminating" else .status.phase end'
_OF_A_PENDING_POD: Final = frozenset(
    {"pod-accepted", "pod-refused", "pod-initializing", "pod-running", "pod-start-error", "pod-backs-off"}
)
# kwok now and then plays a step on an old version of a pod. Its patch carries the version that it was decided on, so
# that it neither plays a step twice nor touches another pod that got the name of one that is gone.
_PATCH: Final = """\
{{- $now := Now -}}
metadata:
  resourceVersion: {{ .metadata.resourceVersion | Quote }}
status:
  {{- with .metadata.generation }}
  observedGeneration: {{ . }}
  {{- end }}
"""


def build_kwok_config(pace: Pace) -> str:
    """Return kwok's configuration file: its settings and the stages of nodes and pods."""
    match pace:
        case Pace.QUICK:
            return _DOCUMENT.join((_read(_NODES), _read(_QUICK)))
        case Pace.REAL:
            return _DOCUMENT.join((_read(_NODES), *map(yaml.safe_dump, build_real_stages())))
        case _:
            assert_never(pace)


def build_real_stages() -> tuple[dict[str, Any], ...]:
    """Return the Stages of pods at the real pace.

    kwok chooses at random among stages that match, so one decision picks the stage, and each stage matches only if it
    is picked.
    """
    statuses: dict[str, str] = yaml.safe_load(_read(_REAL_STATUSES))
    decisions = f"def placeholder_image: {json.dumps(PLACEHOLDER_IMAGE)};\n{_read(_REAL_DECISIONS)}"
    parts = _read(_REAL_PARTS)
    return tuple(_build_stage(name, status, parts, decisions) for name, status in statuses.items())


def _build_stage(name: str, status: str, parts: str, decisions: str) -> dict[str, Any]:
    # Checked first: the decision costs more than ten such checks, and kwok makes it for each stage.
    comes_up = {"jq": {"key": _ROUGHLY, "operator": "In", "values": _find_phases(name)}}
    is_next = {"jq": {"key": f"{decisions}\nnext.stage", "operator": "In", "values": [name]}}
    patch = {"subresource": "status", "template": f"{parts}{_PATCH}{indent(status, '  ')}"}
    written = [{"patch": patch}] if status else []
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": [comes_up, is_next]},
            "delay": {"durationFrom": {"jq": {"expression": f"{decisions}\nnext.delay"}}},
            "steps": [*written, *([{"delete": True}] if name in _LAST else [])],
        },
    }


def _find_phases(name: str) -> list[str]:
    """Return the phases in which a step may be next."""
    if name in _LAST:
        return ["Terminating"]
    if name == "pod-past-deadline":
        return ["Pending", "Running"]
    return ["Pending" if name in _OF_A_PENDING_POD else "Running"]


def _read(name: str) -> str:
    return importlib.resources.files("berth_sandbox.stages").joinpath(name).read_text(encoding="utf-8")
