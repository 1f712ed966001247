"""The Kustomize base is what helm makes of the chart, and kubectl and an API server take it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.client import KubeClient
from berth_kube.resources import NAMESPACES
from berth_sandbox.binaries import find_kubectl
from berth_sandbox.bootstrap import read_rules
from chart.charted import Helm, Manifest, apply_strictly, container, find, shown
from chart.kustomize_base import RENDERED, base_text, objects_of_base
from cluster_objects import is_gone
from conventions.generate_copies import CHART, KUSTOMIZE_BASE
from waiting import eventually

EXAMPLE: Final = KUSTOMIZE_BASE.parent / "example"


def documents(text: str) -> list[Manifest]:
    return list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def build(folder: Path) -> list[Manifest]:
    """Return what kubectl makes of a folder."""
    done = subprocess.run(
        [find_kubectl(print), "kustomize", folder], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def by_name(manifests: list[Manifest]) -> dict[str, Manifest]:
    return {shown(manifest): manifest for manifest in manifests}


def test_the_base_has_the_rights_and_the_version_of_the_chart() -> None:
    manifests = documents(RENDERED.read_text(encoding="utf-8"))
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    for service in ("operator", "descheduler"):
        rules = read_rules(f"berth-{service}")
        assert find(manifests, "Role", f"berth-{service}")["rules"] == rules["namespaceRules"]
        assert container(manifests, service)["image"] == f"berth-{service}:{version}"


def test_the_base_has_the_cluster_rules_and_the_admission_policies_of_the_chart() -> None:
    manifests = documents(RENDERED.read_text(encoding="utf-8"))
    for service in ("operator", "descheduler"):
        rules = find(manifests, "ClusterRole", f"berth-{service}")["rules"]
        missing = [rule for rule in read_rules(f"berth-{service}")["clusterRules"] if rule not in rules]
        assert missing == [], "run python tests/chart/kustomize_base.py"
    text = (CHART / "files" / "admission-policies.yaml").read_text(encoding="utf-8")
    for policy in yaml.safe_load(text):
        spec = find(manifests, "ValidatingAdmissionPolicy", policy["name"])["spec"]
        made, ours = spec["validations"], policy["validations"]
        assert [one["message"] for one in made] == [one["message"] for one in ours], policy["name"]
        accounts = [policy["account"]] if "account" in policy else policy["besides"]
        conditions, our_conditions = spec["matchConditions"][len(accounts) :], policy.get("conditions", [])
        assert [one["name"] for one in conditions] == [one["name"] for one in our_conditions], policy["name"]
        for rendered, source in zip([*made, *conditions], [*ours, *our_conditions], strict=True):
            if "${" not in source["expression"]:  # where the chart fills in values
                assert rendered["expression"] == source["expression"], policy["name"]


@pytest.mark.deep
def test_the_base_is_what_helm_makes_of_the_chart_by_default(helm: Helm) -> None:
    assert RENDERED.read_text(encoding="utf-8") == base_text(helm), "run python tests/chart/kustomize_base.py"


@pytest.mark.deep
def test_kubectl_makes_the_charts_objects_its_crds_and_the_namespace_of_the_base(helm: Helm) -> None:
    crds = [documents(path.read_text(encoding="utf-8"))[0] for path in sorted((CHART / "crds").iterdir())]
    made = by_name(build(KUSTOMIZE_BASE))
    namespace = made.pop(f"Namespace /{DEFAULT_NAMESPACE}")
    assert made == by_name([*objects_of_base(helm), *crds])
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.mark.deep
def test_an_overlay_sets_images_options_and_a_policy(helm: Helm) -> None:
    base, example = by_name(build(KUSTOMIZE_BASE)), by_name(build(EXAMPLE))
    changed = {name for name, manifest in example.items() if base.get(name) != manifest}
    deployments = {f"Deployment {DEFAULT_NAMESPACE}/berth-{service}" for service in ("operator", "descheduler")}
    assert changed == {*deployments, "DeschedulerPolicy /nightly"}
    assert base.keys() <= example.keys()

    values: dict[str, Any] = {
        "image": {"prefix": "registry.example/team"},
        "operator": {"options": {"namespaceLimit": {"team-a": "slots=50"}}},
        "policies": {"nightly": example["DeschedulerPolicy /nightly"]["spec"]},
    }
    rendered = helm.render(values, namespace=DEFAULT_NAMESPACE)
    for service in ("operator", "descheduler"):
        ours, charted = container(list(example.values()), service), container(rendered, service)
        assert ours["image"] == charted["image"]
        assert sorted(ours["args"]) == sorted(charted["args"])


@pytest.fixture
def own_namespace(client: KubeClient) -> Iterator[None]:
    (body,) = documents((KUSTOMIZE_BASE / "namespace.yaml").read_text(encoding="utf-8"))
    made = is_gone(client, NAMESPACES, DEFAULT_NAMESPACE)
    if made:
        client.create(NAMESPACES, body)
    yield
    if made:
        client.delete(NAMESPACES, DEFAULT_NAMESPACE)
        eventually("the namespace is gone", lambda: is_gone(client, NAMESPACES, DEFAULT_NAMESPACE), seconds=180)


@pytest.mark.cluster
@pytest.mark.deep
@pytest.mark.usefixtures("with_own_kinds", "own_namespace")
def test_the_api_server_takes_what_the_example_makes(client: KubeClient) -> None:
    manifests = build(EXAMPLE)
    assert {"Deployment", "DeschedulerPolicy", "CustomResourceDefinition"} <= {one["kind"] for one in manifests}
    for manifest in manifests:
        apply_strictly(client, manifest)
