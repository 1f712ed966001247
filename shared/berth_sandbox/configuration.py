"""Owns the configuration files that the components read: kubeconfigs, scheduler configurations, kwok's stages.

It does not own their command lines: those are in `components`.
"""

import importlib.resources
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from berth_core.names import DEFAULT_NAMESPACE
from berth_sandbox import certificates
from berth_sandbox.bootstrap import BERTH_ACCOUNTS
from berth_sandbox.certificates import ClientIdentity
from berth_sandbox.components import Component
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import LOOPBACK, Ports
from berth_sandbox.settings import SandboxSettings, ScoringStrategy

CONTEXT_PREFIX: Final = "berth-sandbox"
"""How the name of every sandbox context begins; tests and the demo refuse any other."""

SECOND_SCHEDULER_NAME: Final = "second-scheduler"

_SCHEDULER_QPS: Final = 1000
_DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"


def write_configuration(folder: SandboxFolder, ports: Ports, settings: SandboxSettings) -> None:
    """Write every file that the components read at their start, and the administrator's kubeconfig."""
    context = context_name(settings.name)
    for client in certificates.CLIENTS:
        _write_yaml(folder.user_kubeconfig(client.name), build_client_kubeconfig(folder, ports, client, context))
    _write_yaml(folder.kubeconfig, build_client_kubeconfig(folder, ports, certificates.ADMIN, context))
    kubeconfig = folder.user_kubeconfig(certificates.SCHEDULER.name)
    for scheduler, name in (
        (Component.SCHEDULER, _DEFAULT_SCHEDULER_NAME),
        (Component.SECOND_SCHEDULER, SECOND_SCHEDULER_NAME),
    ):
        _write_yaml(folder.scheduler_config(scheduler), build_scheduler_config(name, kubeconfig, settings.scoring))
    _write_yaml(folder.audit_policy, build_audit_policy())
    stages = importlib.resources.files("berth_sandbox").joinpath("stages.yaml")
    folder.kwok_config.write_text(stages.read_text(encoding="utf-8"), encoding="utf-8")


def context_name(name: str | None) -> str:
    """Return the name of the kubeconfig context of a sandbox."""
    return CONTEXT_PREFIX if name is None else f"{CONTEXT_PREFIX}-{name}"


def build_client_kubeconfig(
    folder: SandboxFolder, ports: Ports, client: ClientIdentity, context: str
) -> dict[str, Any]:
    """Return the kubeconfig of a client that shows a certificate."""
    user = {
        "client-certificate": str(folder.certificate(client.name)),
        "client-key": str(folder.key(client.name)),
    }
    return _build_kubeconfig(folder, ports, context, user=user)


def build_token_kubeconfig(
    folder: SandboxFolder, ports: Ports, *, token: str, namespace: str, context: str
) -> dict[str, Any]:
    """Return the kubeconfig of a service account, whose calls default to the namespace."""
    return _build_kubeconfig(folder, ports, context, user={"token": token}, namespace=namespace)


def _build_kubeconfig(
    folder: SandboxFolder, ports: Ports, context: str, *, user: Mapping[str, str], namespace: str = "default"
) -> dict[str, Any]:
    """Return a kubeconfig with one cluster, one user and one context.

    Certificates and keys stand in it as paths: clients that get them in the file itself write them out to temporary
    files, which stay behind when such a client is killed.
    """
    cluster = {
        "server": f"https://{LOOPBACK}:{ports.api_server}",
        "certificate-authority": str(folder.certificate(certificates.AUTHORITY)),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": dict(user)}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context, "namespace": namespace}}],
        "current-context": context,
    }


def build_scheduler_config(scheduler_name: str, kubeconfig: Path, scoring: ScoringStrategy) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration: the stock plugins, one scoring strategy, no client-side limit in the way."""
    fit = {
        "type": scoring.value,
        "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": _SCHEDULER_QPS, "burst": 2 * _SCHEDULER_QPS},
        "leaderElection": {"leaderElect": False},
        "profiles": [
            {
                "schedulerName": scheduler_name,
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": fit}}],
            }
        ],
    }


def build_audit_policy() -> dict[str, Any]:
    """Return the audit policy: who of Berth's accounts called what with which answer; no bodies, and nobody else."""
    users = [f"system:serviceaccount:{DEFAULT_NAMESPACE}:{account}" for account in BERTH_ACCOUNTS]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": users}, {"level": "None"}],
    }


def write_kubeconfig(path: Path, body: Mapping[str, Any]) -> None:
    """Write a kubeconfig that only its owner can read."""
    _write_yaml(path, body)


def _write_yaml(path: Path, body: Mapping[str, Any]) -> None:
    """Write a document that only its owner can read; the keys stay in their order."""
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(dict(body), sort_keys=False), encoding="utf-8")
