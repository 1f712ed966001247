"""The configuration files that components read: kubeconfigs, scheduler configurations, kwok's stages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from berth_core import DEFAULT_NAMESPACE
from berth_sandbox import certificates
from berth_sandbox.bootstrap import BERTH_ACCOUNTS
from berth_sandbox.certificates import ClientIdentity
from berth_sandbox.components import Component
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import LOOPBACK, Ports
from berth_sandbox.settings import SandboxSettings, ScoringStrategy
from berth_sandbox.stages import build_kwok_config

CONTEXT_PREFIX: Final = "berth-sandbox"
"""Prefix of every sandbox context; tests and the demo refuse other contexts."""

SECOND_SCHEDULER_NAME: Final = "second-scheduler"

_SCHEDULER_QPS: Final = 1000
_DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"


def write_configuration(folder: SandboxFolder, ports: Ports, settings: SandboxSettings) -> None:
    """Write all configuration files of the components and the administrator's kubeconfig."""
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
    _write_yaml(folder.scheduler_config(Component.VOLCANO_SCHEDULER), build_volcano_config())
    _write_yaml(folder.audit_policy, build_audit_policy())
    folder.kwok_config.write_text(build_kwok_config(settings.pace), encoding="utf-8")
    _write_yaml(folder.egress_config, build_egress_config(folder))


def context_name(name: str | None) -> str:
    return CONTEXT_PREFIX if name is None else f"{CONTEXT_PREFIX}-{name}"


def build_client_kubeconfig(
    folder: SandboxFolder, ports: Ports, client: ClientIdentity, context: str
) -> dict[str, Any]:
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

    Certificates and keys are paths: clients that get them inline write them to temporary files, which remain when such
    a client is killed.
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
    """Return a KubeSchedulerConfiguration: stock plugins, one scoring strategy, no client limit."""
    fit = {
        "type": scoring.value,
        "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        # By default 50 calls a second (pkg/scheduler/apis/config/v1/defaults.go): the filling of a cluster would
        # measure that.
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": _SCHEDULER_QPS, "burst": 2 * _SCHEDULER_QPS},
        # There is one scheduler of each name, which an election would only keep waiting.
        "leaderElection": {"leaderElect": False},
        "profiles": [
            {
                "schedulerName": scheduler_name,
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": fit}}],
            }
        ],
    }


def build_volcano_config() -> dict[str, Any]:
    """Return the configuration of Volcano's scheduler that its chart installs."""
    plugins = (
        ({"name": "priority"}, {"name": "gang", "enablePreemptable": False}, {"name": "conformance"}),
        (
            {"name": "overcommit"},
            {"name": "drf", "enablePreemptable": False},
            *({"name": name} for name in ("predicates", "proportion", "nodeorder", "binpack")),
        ),
    )
    return {"actions": "enqueue, allocate, backfill", "tiers": [{"plugins": list(tier)} for tier in plugins]}


def build_audit_policy() -> dict[str, Any]:
    """Return the audit policy: only the calls of Berth's accounts, without bodies."""
    users = [f"system:serviceaccount:{DEFAULT_NAMESPACE}:{account}" for account in BERTH_ACCOUNTS]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        # Each call would be in the log twice, the first time without its result.
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": users}, {"level": "None"}],
    }


def build_egress_config(folder: SandboxFolder) -> dict[str, Any]:
    """Return the EgressSelectorConfiguration by which the API server asks the relay for real nodes."""
    transport = {"uds": {"udsName": str(folder.relay_socket)}}
    selection = {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [selection],
    }


def write_kubeconfig(path: Path, body: Mapping[str, Any]) -> None:
    """Write a kubeconfig that only its owner can read."""
    _write_yaml(path, body)


def _write_yaml(path: Path, body: Mapping[str, Any]) -> None:
    """Write a document that only its owner can read, with its keys in order."""
    # With its mode before anything is in it: kubeconfigs have tokens, which others must not read even for a moment.
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(dict(body), sort_keys=False), encoding="utf-8")
