"""Each object and each list is requested once for one moment, whatever it is asked for as."""

from typing import Any

import pytest

from api_server_in_memory import ApiServerInMemory, error
from berth_core import Pod
from berth_core.object_lists import RawObject
from berth_kube.errors import ForbiddenError, NotFoundError, ServerError, UnexpectedObjectError
from berth_kube.read_cache import ReadCache
from berth_kube.resources import PODS


def server(**spec: Any) -> ApiServerInMemory:  # noqa: ANN401 - fields of a pod's spec
    made = ApiServerInMemory()
    body: RawObject = {
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u"},
        "spec": {"nodeName": "a", **spec},
    }
    made.put(PODS, dict(body))
    return made


def cache_of(api: Any) -> ReadCache:  # noqa: ANN401 - stands in for the client
    return ReadCache(api)


def test_an_object_is_requested_once_for_all_types() -> None:
    api = server()
    cache = cache_of(api)
    assert cache.get(PODS, "web-1", namespace="shop")["spec"]["nodeName"] == "a"
    cache.get(PODS, "web-1", namespace="shop")["spec"]["nodeName"] = "changed by a caller"
    assert cache.get(PODS, "web-1", namespace="shop", type=Pod).spec.node_name == "a"
    assert api.calls == ["get pods web-1"]


def test_a_list_is_requested_once_for_each_selector() -> None:
    api = server()
    cache = cache_of(api)
    assert not cache.has_all(PODS, namespace="shop", type=Pod)
    for _ in range(2):
        assert len(cache.list(PODS, namespace="shop", type=Pod).items) == 1
        assert not cache.list(PODS, namespace="shop", label_selector="app=db", type=Pod).items
    assert cache.has_all(PODS, namespace="shop", type=Pod)
    assert not cache.has_all(PODS, namespace="other", type=Pod)
    assert len(api.calls) == 2


@pytest.mark.parametrize("kind", [NotFoundError, ForbiddenError])
def test_what_is_not_there_or_may_not_be_read_is_not_requested_again(kind: type[Any]) -> None:
    api = server()
    api.faults["get pods"] = error(kind)
    cache = cache_of(api)
    for _ in range(2):
        with pytest.raises(kind):
            cache.get(PODS, "web-1", namespace="shop")
    assert len(api.calls) == 1


def test_an_api_server_that_failed_is_asked_again() -> None:
    api = server()
    api.faults["get pods"] = [error(ServerError)]
    cache = cache_of(api)
    with pytest.raises(ServerError):
        cache.get(PODS, "web-1", namespace="shop")
    assert cache.get(PODS, "web-1", namespace="shop")["metadata"]["uid"] == "u"


def test_an_object_that_is_none_of_its_type_is_refused_as_the_client_does() -> None:
    cache = cache_of(server(containers="none"))
    with pytest.raises(UnexpectedObjectError):
        cache.get(PODS, "web-1", namespace="shop", type=Pod)
    assert cache.get(PODS, "web-1", namespace="shop")["spec"]["containers"] == "none"
