"""What the chart's tests share: helm, and a control plane with nothing of Berth on it."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from berth_core.names import DEFAULT_NAMESPACE, REPLACEMENT_TRIAL
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, NotFoundError
from berth_kube.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    NAMESPACES,
    RESERVATIONS,
    SERVICE_ACCOUNTS,
)
from berth_sandbox.binaries import find_helm
from berth_sandbox.bootstrap import BERTH_ACCOUNTS, TRIES_REPLACEMENTS, build_admission_policies
from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.sandbox import Sandbox
from chart.charted import Helm, served
from cluster_objects import is_gone
from control_planes import control_plane
from conventions.generate_copies import CHART
from waiting import eventually

RESTRICTED = "restricted"
OWN_KINDS = (RESERVATIONS, MIGRATION_PLANS, DESCHEDULER_POLICIES)
OWN_CRDS = [f"{resource.plural}.{resource.group}" for resource in OWN_KINDS]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave what needs helm to the deep tier, so that the quick one builds none."""
    for item in items:
        if "helm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.deep)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build helm, if there is none, before the first test begins; where that fails, the tests say so."""
    wanted = any("helm" in getattr(item, "fixturenames", ()) for item in session.items)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if wanted and reporter is not None and not session.config.option.collectonly:
        with suppress(SandboxUnavailableError):
            find_helm(reporter.write_line)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(find_helm(print), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def bare_sandbox() -> Iterator[Sandbox]:
    """Yield a control plane without Berth, which knows kinds of the Prometheus operator and of cert-manager."""
    with control_plane() as started:
        with started.connect() as client:
            remove_berth(client)
            others = Path(__file__).with_name("kinds_of_others.yaml").read_text(encoding="utf-8")
            made = [client.create(CRDS, kind)["spec"]["names"]["kind"] for kind in yaml.safe_load_all(others)]
            make_restricted_namespace(client)
            eventually("the kinds are served", lambda: kinds(client).issuperset(made), seconds=60)
        yield started


@pytest.fixture
def client(bare_sandbox: Sandbox) -> Iterator[KubeClient]:
    with bare_sandbox.connect() as connected:
        yield connected


@pytest.fixture(scope="module")
def with_own_kinds(bare_sandbox: Sandbox) -> Iterator[None]:
    """Have the API server know Berth's kinds, as it does when helm has installed the chart's CRDs."""
    with bare_sandbox.connect() as client:
        for file in sorted((CHART / "crds").glob("*.yaml")):
            with suppress(AlreadyExistsError):  # helm leaves them behind
                client.create(CRDS, yaml.safe_load(file.read_text(encoding="utf-8")))
        wanted = {resource.kind for resource in OWN_KINDS}
        eventually("Berth's kinds are served", lambda: wanted <= kinds(client), seconds=60)
        yield
        remove_own_kinds(client)


def remove_own_kinds(client: KubeClient) -> None:
    """Delete Berth's kinds with all that is of them, and wait until they can be made anew."""
    for name in OWN_CRDS:
        client.delete(CRDS, name)
    eventually("Berth's kinds are gone", lambda: are_gone_or_touched(client), seconds=90, pause_seconds=0.5)


def are_gone_or_touched(client: KubeClient) -> bool:
    """Return whether Berth's kinds are gone, and have the API server look again at those that are not.

    It may miss one that is deleted while its storage is made, until somebody writes it.
    """
    left = [name for name in OWN_CRDS if not is_gone(client, CRDS, name)]
    for name in left:
        with suppress(NotFoundError):
            client.merge_patch(CRDS, name, {"metadata": {"annotations": {"touched": str(time.monotonic())}}})
    return not left


def kinds(client: KubeClient) -> set[str]:
    return {resource.kind for resource in served(client)}


def make_restricted_namespace(client: KubeClient) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESTRICTED, "labels": labels}}
    client.create(NAMESPACES, body)
    eventually(
        "pods can be made",
        lambda: not is_gone(client, SERVICE_ACCOUNTS, "default", RESTRICTED),
        seconds=60,
    )


def remove_berth(client: KubeClient) -> None:
    """Take away what a sandbox is started with, so that the chart installs it."""
    for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        for account in (*BERTH_ACCOUNTS, REPLACEMENT_TRIAL, TRIES_REPLACEMENTS):
            client.delete(resource, account)
    for policy, binding in build_admission_policies():
        client.delete(ADMISSION_POLICY_BINDINGS, binding["metadata"]["name"])
        client.delete(ADMISSION_POLICIES, policy["metadata"]["name"])
    remove_own_kinds(client)
    with suppress(NotFoundError):
        client.delete(NAMESPACES, DEFAULT_NAMESPACE)
    eventually("Berth's namespace is gone", lambda: is_gone(client, NAMESPACES, DEFAULT_NAMESPACE), seconds=90)
