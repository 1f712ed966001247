import pytest

from berth_kube.resources import JOBS, NODES, PODS, RESERVATIONS, Resource

PATHS = {
    "all pods": (PODS.path(), "/api/v1/pods"),
    "the pods of a namespace": (PODS.path(namespace="a"), "/api/v1/namespaces/a/pods"),
    "one pod": (PODS.path("p", namespace="a"), "/api/v1/namespaces/a/pods/p"),
    "a subresource": (PODS.path("p", namespace="a", subresource="eviction"), "/api/v1/namespaces/a/pods/p/eviction"),
    "a node": (NODES.path("n"), "/api/v1/nodes/n"),
    "a resource of a group": (JOBS.path(namespace="a"), "/apis/batch/v1/namespaces/a/jobs"),
    "one of ours": (RESERVATIONS.path(), "/apis/batch.volcano.sh/v1alpha1/reservations"),
    "a name that is no path": (PODS.path("../x?y", namespace="a/b"), "/api/v1/namespaces/a%2Fb/pods/..%2Fx%3Fy"),
}


@pytest.mark.parametrize(("path", "want"), PATHS.values(), ids=PATHS)
def test_a_resource_has_the_path_that_the_api_server_gives_it(path: str, want: str) -> None:
    assert path == want


def test_one_object_of_a_namespace_needs_the_namespace() -> None:
    with pytest.raises(ValueError, match="pods 'p' needs a namespace"):
        PODS.path("p")


def test_a_clusters_resource_has_no_namespace() -> None:
    with pytest.raises(ValueError, match="nodes have no namespace"):
        NODES.path("n", namespace="a")


def test_what_is_addressed_can_be_said() -> None:
    said = [PODS.describe("p", namespace="a"), PODS.describe(namespace="a"), NODES.describe("n"), NODES.describe()]
    assert said == ["pods a/p", "pods in a", "nodes n", "nodes"]


def test_the_api_version_is_group_and_version() -> None:
    assert (PODS.api_version, JOBS.api_version) == ("v1", "batch/v1")
    assert Resource("g", "v2", "things", "Thing").api_version == "g/v2"
