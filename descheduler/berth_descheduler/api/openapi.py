"""The OpenAPI description, with schemas made from the documents, and its page."""

from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi

from berth_core.decoding import decode_json
from berth_descheduler.api.capability_paths import capability_paths
from berth_descheduler.api.problems import MEDIA_TYPE, Problem
from berth_descheduler.api.schemas import DOCUMENTS

_SCHEMAS: Final = "#/components/schemas/"
_TITLE: Final = "Berth descheduler"
_ABOUT: Final = (
    "Requests runs of the descheduler, shows, follows, approves and aborts their plans, and reports the fragmentation "
    "of the cluster. Callers send a bearer token that the cluster knows, and may do what its RBAC lets them do to the "
    "objects behind a path. Every error is a problem document (RFC 9457)."
)
_RETRY: Final = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}
_PROBLEMS: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.BAD_REQUEST: "The request cannot be read.",
    HTTPStatus.UNAUTHORIZED: "The cluster does not know the token.",
    HTTPStatus.FORBIDDEN: "The caller lacks the right.",
    HTTPStatus.REQUEST_TIMEOUT: "The request came too slowly.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.REQUEST_URI_TOO_LONG: "Path and query are too long.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not application/json.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Something in the request is wrong; errors name it.",
    HTTPStatus.TOO_MANY_REQUESTS: "The caller sends too much at once.",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "The headers are too large.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "The service failed.",
    HTTPStatus.BAD_GATEWAY: "The cluster refused the service itself.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The service is at its limits, or the cluster does not answer.",
    HTTPStatus.GATEWAY_TIMEOUT: "There was no answer in time.",
}
_WITH_RETRY: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_MISSING: Final = "There is no such object."
_CONFLICT: Final = "The state of the object does not allow this, or the key was used before."
_UNBOUND: Final = "The request does not say which version of the plan it is about."


def answers(
    document: type,
    text: str,
    *,
    media_type: str = "application/json",
    missing: bool = True,
    conflict: bool = False,
    location: bool = False,
    nothing: bool = False,
    version: bool = False,
    bound: bool = False,
) -> dict[str, Any]:
    """Return FastAPI's arguments for a path that answers a document or a problem."""
    schema = {"$ref": f"{_SCHEMAS}{document.__name__}"}
    success: dict[str, Any] = {"description": text, "content": {media_type: {"schema": schema}}}
    if location:
        success["headers"] = {"Location": {"description": "The plan's path.", "schema": {"type": "string"}}}
    if version:
        success["headers"] = {
            "ETag": {"description": "The plan's version, for If-Match.", "schema": {"type": "string"}}
        }
    status = HTTPStatus.ACCEPTED if location or conflict else HTTPStatus.OK
    problems = {
        **_PROBLEMS,
        **({HTTPStatus.NOT_FOUND: _MISSING} if missing else {}),
        **({HTTPStatus.CONFLICT: _CONFLICT} if conflict else {}),
        **({HTTPStatus.PRECONDITION_REQUIRED: _UNBOUND} if bound else {}),
    }
    responses: dict[int | str, dict[str, Any]] = {int(status): success}
    responses |= {int(code): _problem(code, text) for code, text in sorted(problems.items())}
    if nothing:
        responses[int(HTTPStatus.NO_CONTENT)] = {"description": "All events were read, and there will be no more."}
    return {"response_class": Response, "response_model": None, "responses": responses}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the description of an application."""
    description = get_openapi(
        title=_TITLE, version=version("berth"), description=_ABOUT, routes=app.routes, servers=[{"url": "/"}]
    )
    components = description.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    # FastAPI describes models of pydantic only, and the answers are msgspec structs.
    _, document_schemas = msgspec.json.schema_components(
        (*answered_documents(), Problem), ref_template=f"{_SCHEMAS}{{name}}"
    )
    schemas |= document_schemas
    components["securitySchemes"] = {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of a service account or a user of the cluster, as `kubectl create token` gives.",
        }
    }
    description["security"] = [{"bearer": []}]
    for path in description["paths"].values():
        for operation in path.values():
            operation["parameters"] = [_without_null(parameter) for parameter in operation.get("parameters", ())]
            _add_example(operation, examples()[operation["operationId"]])
    return description


@cache
def examples() -> Mapping[str, Mapping[str, Any]]:
    """Return by operation `request` (method and path with its query), `body` where one is sent, and `answer`."""
    own = decode_json((files(__package__) / "examples.json").read_bytes(), dict[str, dict[str, Any]])
    return {**own, **{name: example for paths in capability_paths() for name, example in paths.examples.items()}}


def answered_documents() -> tuple[type[msgspec.Struct], ...]:
    """Return what all paths answer."""
    return (*DOCUMENTS, *(document for paths in capability_paths() for document in paths.documents))


def _add_example(operation: dict[str, Any], example: Mapping[str, Any]) -> None:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        content["example"] = example["body"]
    answer = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
    for content in answer["content"].values():
        content["example"] = example["answer"]


def _problem(status: HTTPStatus, text: str) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}Problem"}}}
    described: dict[str, Any] = {"description": text, "content": content}
    if status in _WITH_RETRY:
        described["headers"] = _RETRY
    if status is HTTPStatus.UNAUTHORIZED:
        described["headers"] = {
            "WWW-Authenticate": {"description": "How to authenticate.", "schema": {"type": "string"}}
        }
    return described


def _without_null(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return an optional parameter without null: it is absent or typed."""
    schema = parameter["schema"]
    typed_alternatives = [alternative for alternative in schema.get("anyOf", ()) if alternative.get("type") != "null"]
    if len(typed_alternatives) != 1:
        return parameter
    other_keywords = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**parameter, "schema": {**other_keywords, **typed_alternatives[0]}}
