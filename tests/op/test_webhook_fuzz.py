"""Whatever is sent to the webhook, what is a review is answered and allowed, and the server lives on as before."""
# ruff: noqa: ANN401 - any JSON

import asyncio
import base64
import gc
import http.client
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth_core.labels import HANDOVER_GATE, PROBE_LABEL, RESERVATION_LABEL
from berth_core.reservations import SlotState
from berth_operator.admission.reviews import Admission, read_pod, read_review
from berth_operator.reservation.store.cache import Cache
from builders import as_api, pod
from handover_builders import PLACE_UID, place, slot
from json_patches import apply
from webhook_calls import OWNER, review, running_server, trusting

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
QUANTITIES = (
    st.sampled_from(["1", "500m", "-1", "1e400", "0x10", "NaN", "9" * 400, "1Ki", "", "1.5.2", "\u0661"]) | st.text()
)
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/gpu"]) | st.text(max_size=8), QUANTITIES)
LABELS = st.dictionaries(
    st.sampled_from(["app", PROBE_LABEL, RESERVATION_LABEL]) | st.text(max_size=8),
    st.sampled_from(["web", PLACE_UID, ""]) | st.text(max_size=8) | JSON,
    max_size=4,
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.text(max_size=8)},
        optional={
            "image": SCALARS,
            "resources": st.fixed_dictionaries({}, optional={"requests": RESOURCES | JSON, "limits": RESOURCES | JSON}),
            "restartPolicy": SCALARS,
            "ports": JSON,
        },
    ),
    max_size=3,
)
GATES = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from([HANDOVER_GATE, "example.com/x"]) | SCALARS}), max_size=3
)
PODS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": JSON | st.fixed_dictionaries({}, optional={"labels": LABELS | JSON, "ownerReferences": JSON}),
        "spec": JSON
        | st.fixed_dictionaries(
            {},
            optional={
                "containers": CONTAINERS | JSON,
                "initContainers": CONTAINERS | JSON,
                "schedulingGates": GATES | JSON,
                "tolerations": JSON,
                "affinity": JSON,
                "nodeSelector": LABELS | JSON,
                "overhead": RESOURCES | JSON,
                "nodeName": SCALARS,
                "priority": SCALARS,
            },
        ),
        "status": JSON,
    },
)
OWNERS = PODS.map(lambda odd: _joined(as_api(pod(labels={"app": "web"})), odd))
REQUESTS = st.fixed_dictionaries(
    {"uid": st.text(), "object": PODS | OWNERS | JSON, "operation": st.just("CREATE") | st.text()},
    optional={"namespace": st.just("default") | st.text(), "dryRun": st.booleans(), "options": JSON, "oldObject": JSON},
)


@pytest.mark.parametrize("levels", [700, 1_500, 9_900])
def test_a_pod_with_deep_managed_fields_is_read_as_any_other(levels: int) -> None:
    """Whoever may create a pod may send such fields: its slot is not lost by them."""
    raw = review(as_api(pod(labels={"app": "web"})))
    managed = b'"managedFields":[{"fieldsV1":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}],"
    odd = raw.replace(b'"labels"', managed + b'"labels"', 1)
    assert odd != raw
    plain_pod, odd_pod = (read_pod(read_review(body).request) for body in (raw, odd))
    assert plain_pod is not None
    assert odd_pod == plain_pod


def _joined(base: Any, odd: Any) -> Any:
    """Put odd fields into a pod that is as it should be."""
    if isinstance(base, dict) and isinstance(odd, dict):
        return base | {key: _joined(base.get(key), value) for key, value in odd.items()}
    return odd


@dataclass
class Caller:
    """One kept-alive connection to a server that runs in a thread."""

    connection: http.client.HTTPSConnection
    path: str

    def post(self, body: bytes) -> tuple[int, bytes]:
        self.connection.request("POST", self.path, body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    made: list[Caller] = []
    started, ended = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with running_server() as (server, keeper):
            path = server.client_config()["url"].partition(f":{server.port}")[2]
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trusting(keeper), timeout=60)
            made.append(Caller(connection, path))
            started.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(60)
    yield made[0]
    made[0].connection.close()
    loop.call_soon_threadsafe(ended.set)
    thread.join(60)
    loop.close()


FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FUZZ
@given(request=REQUESTS)
def test_every_review_is_allowed_under_its_uid_and_its_patch_can_be_applied(
    caller: Caller, request: dict[str, Any]
) -> None:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    status, raw = caller.post(msgspec.json.encode(body))
    assert status == 200
    answer = msgspec.json.decode(raw)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert (response["uid"], response["allowed"]) == (request["uid"], True)
    if "patch" in response:
        patched = apply(msgspec.json.decode(base64.b64decode(response["patch"])), request["object"])
        assert HANDOVER_GATE in [gate["name"] for gate in patched["spec"]["schedulingGates"]]
        assert patched["metadata"]["labels"][RESERVATION_LABEL] == PLACE_UID


@FUZZ
@given(body=st.binary() | JSON.map(msgspec.json.encode) | st.binary().map(lambda junk: OWNER[: len(OWNER) // 2] + junk))
def test_what_is_no_review_is_refused_on_a_connection_of_its_own(caller: Caller, body: bytes) -> None:
    status, _ = caller.post(body)
    assert status == 400
    assert caller.post(OWNER)[0] == 200


@FUZZ
@given(raw=st.binary(max_size=200))
def test_bytes_that_are_no_http_leave_the_server_alive(caller: Caller, raw: bytes) -> None:
    context = caller.connection._context  # type: ignore[attr-defined]
    with (
        socket.create_connection(("127.0.0.1", caller.connection.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(raw + b"\r\n\r\n")
    assert caller.post(OWNER)[0] == 200


def test_the_memory_is_the_same_after_many_reviews_as_before() -> None:
    cache = Cache(lambda _key: None)
    for number in range(3):
        uid = f"uid-{number}"
        cache.put_reservation(place(slot(SlotState.HELD), uid=uid, name=f"place-{number}"))
    admission = Admission(cache)
    clock = [0.0]

    def round_of_reviews() -> int:
        for number in range(500):
            clock[0] += 0.5
            body = as_api(pod(f"web-{number}", labels={"app": "web", "n": str(number)}, uid=""))
            admission.answer(read_review(review(body)))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("berth_operator.admission.reviews.time", SimpleNamespace(monotonic=lambda: clock[0]))
        tracemalloc.start()
        try:
            round_of_reviews()
            grown = -round_of_reviews() + round_of_reviews()
        finally:
            tracemalloc.stop()
    assert grown < 32 * 1024
