"""The description of the HTTP interface is true and sufficient."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any, cast

import html5lib
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from prometheus_client import CollectorRegistry
from schemathesis import Case, GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.openapi.loaders import from_asgi
from schemathesis.schemas import BaseSchema

from berth_core.clock import SystemClock
from berth_descheduler.api.app import Application
from berth_descheduler.api.openapi import answered_documents, examples
from berth_descheduler.api.schemas import (
    ApprovalRequest,
    EventKind,
    RunRequest,
    StreamedEvent,
)
from berth_descheduler.cli import plans, policies
from berth_descheduler.cli.main import run
from berth_descheduler.report import ListedPlan
from berth_kube.client import KubeClient
from berth_kube.resources import MIGRATION_PLANS
from conventions.pages import PAGES, prose
from descheduler.rest_server import ADMIN, ReviewingCluster, add_plan, ask, hurried, populated, quick, serving
from properties import DEEP, MANY

PATHS = (
    "POST /v1/runs",
    "POST /v1/drains",
    "GET /v1/plans",
    "GET /v1/plans/{name}",
    "POST /v1/plans/{name}/approve",
    "POST /v1/plans/{name}/abort",
    "GET /v1/plans/{name}/events",
    "GET /v1/fragmentation",
    "GET /v1/fragmentation/history",
    "GET /v1/nodes",
    "GET /v1/queues",
    "GET /v1/reservations",
    "GET /v1/calendar",
    "GET /v1/findings",
    "GET /v1/policies",
)
REJECTIONS = [400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 422, 428, 429, 431, "5xx"]
"""With 413, 414 and 431, which schemathesis does not expect: what is generated may be longer than the limits."""

ACCEPTANCES = ["2xx", "3xx", 401, 403, 404, 409, 428, 429, "5xx"]
"""With 428, which schemathesis does not expect: either a header or a body names the plan, and no schema says so."""


@pytest.fixture(scope="module")
def described() -> Iterator[BaseSchema]:
    """The interface in front of a cluster in memory, as its own description tells it."""
    many = quick(requests=100, requests_per_caller=100, streams_per_caller=64)
    client = cast("KubeClient", populated())
    application = Application(client, SystemClock(), hurried(many, stream_seconds=0.2), CollectorRegistry())
    rejected: dict[str, Any] = {
        # It takes the token of the configuration for one that it has made up; test_rest_attacks has real wrong ones.
        "ignored_auth": {"enabled": False},
        "negative_data_rejection": {"expected-statuses": REJECTIONS},
        "positive_data_acceptance": {"expected-statuses": ACCEPTANCES},
    }
    config = SchemathesisConfig.from_dict({"headers": {"Authorization": f"Bearer {ADMIN}"}, "checks": rejected})
    yield from_asgi("/openapi.json", application.asgi, config=config)
    application.end_streams()


@pytest.mark.parametrize("examples", [15, pytest.param(DEEP, marks=MANY)])
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
@pytest.mark.parametrize("asked", PATHS)
def test_whatever_is_asked_is_answered_as_described(
    described: BaseSchema, asked: str, mode: GenerationMode, examples: int
) -> None:
    method, path = asked.split(" ")
    operation = described[path][method.lower()]
    cases = operation.as_strategy(generation_mode=mode)

    @seed(6)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=cases)
    def holds(case: Case[Any]) -> None:
        case.call_and_validate()

    with suppress(Unsatisfiable):  # a path without parameters cannot be asked wrongly
        holds()


def test_every_path_that_is_described_was_asked(described: BaseSchema) -> None:
    assert {f"{method.upper()} {path}" for path in described for method in described[path]} == set(PATHS)


def test_the_page_needs_nothing_from_elsewhere() -> None:
    with serving(populated()) as url:
        answer = ask("GET", f"{url}/docs", token=None)
    html5lib.HTMLParser(strict=True).parse(answer.text)
    found = Links()
    found.feed(answer.text)
    assert found.links
    assert not [link for link in found.links if not link.startswith("#") and link != "openapi.json"]
    assert not found.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert {link.removeprefix("#") for link in found.links if link.startswith("#")} <= found.ids
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


DOCUMENTS_BY_NAME = {document.__name__: document for document in (*answered_documents(), ListedPlan)}


@pytest.mark.parametrize("asked", PATHS)
def test_every_path_has_an_example_that_is_true_to_its_document(asked: str) -> None:
    with serving(populated()) as url:
        operation = operations(ask("GET", f"{url}/openapi.json", token=None).json())[asked]
    (answer,) = (answer for status, answer in operation["responses"].items() if "example" in str(answer.get("content")))
    (content,) = answer["content"].values()
    document, example = DOCUMENTS_BY_NAME[content["schema"]["$ref"].rpartition("/")[2]], content["example"]
    if document is StreamedEvent:
        events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in example.strip().split("\n\n")]
        assert {event["event"] for event in events} <= {kind.value for kind in EventKind}
        assert all(event.keys() == {"id", "event", "data"} for event in events)
    else:
        assert json.loads(msgspec.json.encode(msgspec.convert(example, document))) == example


BODIES: dict[str, Any] = {"RunRequest": RunRequest, "ApprovalRequest": ApprovalRequest}


def test_every_body_has_an_example_that_is_taken() -> None:
    with serving(populated()) as url:
        described = operations(ask("GET", f"{url}/openapi.json", token=None).json())
    bodies = [
        content
        for operation in described.values()
        for content in operation.get("requestBody", {}).get("content", {}).values()
    ]
    by_name = {name: content for content in bodies for name in re.findall(r"\w+Request", json.dumps(content["schema"]))}
    assert by_name.keys() >= BODIES.keys(), "those of capabilities have tests of their own"
    for name, body in BODIES.items():
        assert body.model_validate(by_name[name]["example"]).model_dump(exclude_defaults=True)


def test_examples_ask_for_the_paths_that_they_stand_at() -> None:
    with serving(populated()) as url:
        described = operations(ask("GET", f"{url}/openapi.json", token=None).json())
    by_id = {operation["operationId"]: asked for asked, operation in described.items()}
    assert by_id.keys() == examples().keys()
    for operation_id, asked in by_id.items():
        method, path = asked.split(" ")
        pattern = re.sub(r"\{\w+\}", "[a-z0-9-]+", path)
        assert re.fullmatch(rf"{method} {pattern}(\?.+)?", examples()[operation_id]["request"])


def test_a_status_that_every_path_may_answer_is_explained_in_one_place() -> None:
    with serving(populated()) as url:
        page = ask("GET", f"{url}/docs", token=None).text
        description = ask("GET", f"{url}/openapi.json", token=None).json()
    shared = set.intersection(*(set(operation["responses"]) for operation in operations(description).values()))
    assert {"400", "401", "403", "429", "500", "503"} <= shared
    for status in shared - {"200", "202"}:
        assert page.count(f'<th scope="row">{status}</th>') == 1, status
    assert page.count('href="#statuses"') == 1 + len(PATHS)


def test_the_description_names_no_other_server() -> None:
    with serving(populated()) as url:
        description = ask("GET", f"{url}/openapi.json", token=None).json()
    addresses = re.findall(r"https?://[^\"]*", json.dumps(description))
    assert not addresses
    assert description["servers"] == [{"url": "/"}]
    assert all(operation["security"] == [{"bearer": []}] for operation in operations(description).values())


def test_the_description_explains_every_parameter_and_answer() -> None:
    with serving(populated()) as url:
        description = ask("GET", f"{url}/openapi.json", token=None).json()
    for name, operation in operations(description).items():
        assert operation["summary"], name
        assert all(parameter["description"] for parameter in operation["parameters"]), name
        assert all(answer["description"] for answer in operation["responses"].values()), name
        assert {"400", "401", "403", "429", "500", "503"} <= operation["responses"].keys(), name


def test_the_pages_name_the_paths_that_exist() -> None:
    written = (prose(page) for page in PAGES if page.name != "reference.md")
    named = {path for text in written for path in re.findall(r"`((?:GET|POST) /v1/[^`]+)`", text)}
    assert named == set(PATHS)


def test_commands_write_the_documents_that_the_interface_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cluster() -> ReviewingCluster:
        made = populated()
        begun = add_plan(made, "plan-begun", phase="Running", states=("Landed", "Pending"))
        begun["status"]["moves"].pop()
        begun["status"]["achieved"] = {"landedOnTarget": 1, "freedNodes": ["n1"]}
        made.add(MIGRATION_PLANS, begun)
        return made

    with serving(cluster()) as url:
        answers = {path: ask("GET", f"{url}/v1/{path}").json() for path in ("plans/plan-begun", "plans", "policies")}

    for commands in (plans, policies):
        monkeypatch.setattr(commands, "connect", lambda **_: cluster())
    begun = {one["name"]: one for one in answers["plans"]["items"]}["plan-begun"]
    assert (begun["states"], begun["landedOnTarget"], begun["freedNodeCount"]) == ({"Pending": 1, "Landed": 1}, 1, 1)
    for command, path in (("show plan-begun", "plans/plan-begun"), ("plans", "plans"), ("policies", "policies")):
        assert run([*command.split(), "--output", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == answers[path]


def operations(description: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the operations by method and path, with the security that holds for all."""
    found = {
        f"{method.upper()} {path}": {"security": description["security"], **operation}
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    }
    assert msgspec.json.encode(found)
    return found


class Links(HTMLParser):
    """Collects what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in {"href", "src"}:
                self.links.append(value or "")
            if name == "id":
                self.ids.add(value or "")
