"""A real API server takes what the chart makes, and finds no field that it does not know."""

from copy import deepcopy

import pytest

from berth_kube.client import KubeClient
from berth_kube.errors import ForbiddenError, KubeError
from chart.charted import Helm, Manifest, apply_strictly
from chart.conftest import RESTRICTED
from chart.value_sets import VALUE_SETS

pytestmark = [pytest.mark.cluster, pytest.mark.deep]


def pods(manifests: list[Manifest]) -> list[Manifest]:
    """Return a pod as each Deployment would make it, and that of `helm test`, but of an account that is there."""
    found = []
    for manifest in manifests:
        if manifest["kind"] in {"Deployment", "Pod"}:
            template = deepcopy(manifest["spec"]["template"] if manifest["kind"] == "Deployment" else manifest)
            template["spec"] = {**template["spec"], "serviceAccountName": "default"}
            metadata = {**template["metadata"], "name": manifest["metadata"]["name"], "namespace": RESTRICTED}
            found.append({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata})
    return found


@pytest.mark.usefixtures("with_own_kinds")
@pytest.mark.parametrize("case", VALUE_SETS)
def test_the_api_server_takes_the_rendering_of(helm: Helm, client: KubeClient, case: str) -> None:
    for manifest in helm.render(VALUE_SETS[case]):
        if manifest["kind"] != "Pod":
            apply_strictly(client, manifest)


@pytest.mark.parametrize("case", VALUE_SETS)
def test_a_restricted_namespace_takes_the_pods_of(helm: Helm, client: KubeClient, case: str) -> None:
    made = pods(helm.render(VALUE_SETS[case]))
    assert made
    for pod in made:
        apply_strictly(client, pod)


def test_a_misspelt_field_would_be_found(helm: Helm, client: KubeClient) -> None:
    manifests = helm.render({})
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            manifest["spec"]["revisionHistoryLimits"] = 1
            with pytest.raises(KubeError, match="revisionHistoryLimits"):
                apply_strictly(client, manifest)


def test_a_pod_with_more_rights_would_be_refused(helm: Helm, client: KubeClient) -> None:
    for pod in pods(helm.render({})):
        del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
        with pytest.raises(ForbiddenError, match="restricted"):
            apply_strictly(client, pod)
