import pytest

from berth_core.errors import InputError, PermanentError
from berth_kube.client import KubeClient
from berth_kube.resources import JOBS, NODES, PODS, RESERVATIONS, Resource, UnaddressableError, is_path_segment
from scripted_server import ScriptedServer

PATHS = {
    "all pods": (PODS.path(), "/api/v1/pods"),
    "the pods of a namespace": (PODS.path(namespace="a"), "/api/v1/namespaces/a/pods"),
    "one pod": (PODS.path("p", namespace="a"), "/api/v1/namespaces/a/pods/p"),
    "a subresource": (PODS.path("p", namespace="a", subresource="eviction"), "/api/v1/namespaces/a/pods/p/eviction"),
    "a node": (NODES.path("n"), "/api/v1/nodes/n"),
    "a resource of a group": (JOBS.path(namespace="a"), "/apis/batch/v1/namespaces/a/jobs"),
    "one of ours": (RESERVATIONS.path(), "/apis/batch.volcano.sh/v1alpha1/reservations"),
    "a name with a colon": (NODES.path("system:node:a b"), "/api/v1/nodes/system%3Anode%3Aa%20b"),
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


MISLEADING = {
    "nothing": "",
    "the folder itself": ".",
    "the folder above": "..",
    "a way up": "../../../apis",
    "a way down": "a/b",
    "a way of Windows": "a\\b",
    "an escaped slash": "a%2fb",
    "a query": "a?watch=true",
    "a fragment": "a#b",
    "a line break": "a\nb",
    "NUL": "a\0b",
    "an escape sequence": "a\x1b[2Jb",
    "half a character": "a\ud800b",
}


@pytest.mark.parametrize("text", MISLEADING.values(), ids=MISLEADING)
def test_what_leads_elsewhere_never_stands_in_a_path(text: str) -> None:
    assert not is_path_segment(text)
    with pytest.raises(UnaddressableError, match="Pod name is ") as refused:
        PODS.path(text, namespace="a")
    assert (refused.value.field, refused.value.value) == ("Pod name", text)
    assert isinstance(refused.value, InputError)
    assert isinstance(refused.value, PermanentError)
    with pytest.raises(UnaddressableError, match="Pod namespace is "):
        PODS.path(namespace=text)
    with pytest.raises(UnaddressableError, match="Pod namespace is "):
        PODS.path("p", namespace=text)
    with pytest.raises(UnaddressableError, match="Node name is "):
        NODES.path(text)


@pytest.mark.parametrize("text", MISLEADING.values(), ids=MISLEADING)
def test_no_call_is_sent_with_what_leads_elsewhere(client: KubeClient, server: ScriptedServer, text: str) -> None:
    calls = (
        lambda: client.get(NODES, text),
        lambda: client.list(PODS, namespace=text),
        lambda: client.merge_patch(NODES, text, {}),
        lambda: client.json_patch(NODES, text, []),
        lambda: client.delete(NODES, text),
        lambda: client.evict("default", text, uid="u"),
    )
    for call in calls:
        with pytest.raises(UnaddressableError):
            call()
    assert not server.seen
