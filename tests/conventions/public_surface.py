"""What users and other programs see of Berth, read off the programs: the texts of `tests/golden`.

As little as possible depends on where code stands or what it is called there: commands come from the installed
scripts, metrics and log events from the calls that make them, vocabularies from their values.
"""

import ast
import asyncio
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast, get_args

import click
import yaml
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from berth_core import names
from berth_core.clock import SystemClock
from berth_core.errors import BerthError, InputError
from berth_core.policies import SCHEDULED, VALID
from berth_descheduler.api.app import DESCRIPTION_PATH, PAGE_PATH, Application
from berth_descheduler.cli.main import berth
from berth_descheduler.goals import OFFERED_GOALS
from berth_descheduler.plugins.registry import ENTRY_POINT_GROUP, OWN_PLUGINS
from berth_descheduler.server import serve
from berth_kube.client import KubeClient
from berth_operator.cli import main as operator
from berth_operator.reservation.actions import Action, label_of
from berth_operator.reservation.conditions import OWNER_DIFFERS, TEMPLATE_DIFFERS, ConditionReason
from berth_operator.runtime.registry import CAPABILITIES
from berth_operator.runtime.workqueue import KeyKind
from conventions.command_documents import documents
from conventions.plugin_framework import framework
from conventions.source_walk import PACKAGES, Source, sources
from conventions.terminal_pictures import pictures
from conventions.tracked import ROOT
from descheduler.rest_server import populated, quick

GOLDEN: Final = ROOT / "tests" / "golden"
_CHART: Final = ROOT / "helm" / "berth"
_DOMAIN: Final = "berth.volcano.sh"
_LOG_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_LOGGERS: Final = frozenset({"log", "logger"})
_NO_CONTRACT: Final = frozenset({"description", "title", "example", "examples", "summary"})
_WALKED: Final = frozenset({"properties", "items", "additionalProperties", "required", "type"})

_VOCABULARIES: Final[Mapping[str, frozenset[str]]] = {
    "conditions of a Reservation": frozenset({"HandoverReady"}),
    "effect of the taint on a freed node": frozenset({"PreferNoSchedule", "None"}),
    "events on a plan": frozenset({"Adopted"}),
    "events on a pod of the descheduler's": frozenset({"EvictedByPlan"}),
    "events on a policy": frozenset({"InvalidPolicy"}),
    "findings of policy lint": frozenset({"error", "warning"}),
    "formats of --output": frozenset({"table", "yaml"}),
    "invariants of the sandbox": frozenset({"GateLeft"}),
    "kinds of objects in a snapshot": frozenset({"poddisruptionbudgets.policy"}),
    "kinds of what a plan refuses": frozenset({"Node", "Pod"}),
    "marks of a node in berth top": frozenset({"not ready"}),
    "meanings of prefer-no-eviction": frozenset({"Preferred", "Mandatory"}),
    "modes of a policy": frozenset({"Plan", "Auto"}),
    "move reasons": frozenset({"ReplacementTimeout"}),
    "move states": frozenset({"Landed"}),
    "phases of a Reservation": frozenset({"Waiting", "Available"}),
    "phases of a cycle": frozenset({"leftovers"}),
    "phases of a plan": frozenset({"Proposed"}),
    "pod protections": frozenset({"PodsWithPVC"}),
    "points where plugins are called": frozenset({"preEvictionFilter"}),
    "problems of the REST interface": frozenset({"malformed-request"}),
    "proofs of a plan's bound": frozenset({"Exact"}),
    "reasons of a Reservation and its slots": frozenset({"AwaitingScheduler"}),
    "reasons of a policy's condition Scheduled": frozenset({"OnRequest"}),
    "reasons of a policy's condition Valid": frozenset({"InvalidField"}),
    "refusal reasons": frozenset({"MirrorPod"}),
    "room reasons": frozenset({"NotTaken"}),
    "room states": frozenset({"Held", "Failed"}),
    "slot states": frozenset({"Held", "Lost"}),
    "types of the event stream's events": frozenset({"deleted", "problem"}),
    "verdicts of a cycle": frozenset({"NothingToMove"}),
}
"""Title to members by which the one enumeration is found that has them all: enumerations may move and be renamed."""


def surface() -> dict[Path, str]:
    """Return every golden file with what should stand in it."""
    listings: dict[str, Callable[[], Iterable[str]]] = {
        "chart": _chart,
        "commands": _commands,
        "documents": documents,
        "framework": framework,
        "logs": _logs,
        "metrics": _metrics,
        "names": _names,
        "objects": _objects,
        "reasons": _reasons,
        "rest": _rest,
        "rights": _rights,
        "terminal": pictures,
    }
    return {GOLDEN / f"{name}.txt": "\n".join(listing()).strip() + "\n" for name, listing in listings.items()}


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", f"# {title}", *lines)


def _brief(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


# Commands


def _scripts() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return dict(sorted(project["scripts"].items()))


def _command_of(script: str, target: str) -> click.Command | None:
    """Return the command behind a script, None where it is none of click's or another name of one.

    The entry points import it only once libraries cannot print into its output any more.
    """
    assert callable(EntryPoint(script, target, "console_scripts").load())
    return {"berth": berth, "berth-descheduler": serve, "berth-operator": operator}.get(script)


def _commands() -> Iterator[str]:
    """List every command with its parameters, and the exit codes."""
    for script, target in _scripts().items():
        command = _command_of(script, target)
        if command is not None:
            yield from _parameters(command, click.Context(command, info_name=script, **command.context_settings))
    said = re.findall(r"^  (\d+) ", _command_of("berth", _scripts()["berth"]).epilog or "", re.MULTILINE)  # type: ignore[union-attr]
    yield from _section("exit codes that berth --help lists", [" ".join(said)])
    errors = sorted({f"{one.__name__}: {one.exit_code}" for one in (BerthError, InputError)})
    yield from _section("exit codes of errors", errors)


def _parameters(command: click.Command, context: click.Context) -> Iterator[str]:
    own = (one for one in command.get_params(context) if one.name and not one.name.startswith("_"))
    yield from _section(context.command_path, (_parameter(one, context) for one in own))
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            found = command.get_command(context, name)
            assert found is not None
            yield from _parameters(
                found, click.Context(found, info_name=name, parent=context, **found.context_settings)
            )


def _parameter(parameter: click.Parameter, context: click.Context) -> str:
    """Return one parameter in a line: names, type, default, environment variable, and what else holds."""
    words = [" / ".join([*parameter.opts, *parameter.secondary_opts]), _type_of(parameter)]
    default = parameter.get_default(context, call=False)
    if isinstance(default, str | int | float) and default is not False:
        words.append(f"default {_brief(default)}")
    if isinstance(parameter, click.Option) and parameter.metavar:
        words.append(f"shown as {parameter.metavar}")
    if parameter.required:
        words.append("required")
    if parameter.multiple if isinstance(parameter, click.Option) else parameter.nargs != 1:
        words.append("several")
    if isinstance(parameter, click.Option) and parameter.hidden:
        words.append("hidden")
    if context.auto_envvar_prefix and parameter.name:
        words.append(f"env {context.auto_envvar_prefix}_{parameter.name.upper()}")
    return "; ".join(words)


def _type_of(parameter: click.Parameter) -> str:
    kind = parameter.type
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "flag"
    if isinstance(kind, click.Choice):
        return f"one of {', '.join(map(str, kind.choices))}"
    if isinstance(kind, click.IntRange | click.FloatRange):
        return f"{kind.name} from {kind.min} to {kind.max}"
    return kind.name


# Objects, REST, rights, chart


def _schema(path: str, schema: Mapping[str, Any], *, required: bool = False) -> Iterator[str]:
    """List the paths of a JSON schema with types and limits, without what is only said to people."""
    limits = {key: value for key, value in sorted(schema.items()) if key not in _NO_CONTRACT | _WALKED}
    if "x-kubernetes-validations" in limits:
        limits["x-kubernetes-validations"] = len(limits["x-kubernetes-validations"])
    words = [f"{key}={_brief(value)}" for key, value in limits.items()]
    kind = schema.get("type", "")
    yield " ".join([f"{path}:", str(kind), *(["required"] if required else []), *words]).strip()
    needed = schema.get("required", ())
    for name, one in sorted(schema.get("properties", {}).items()):
        yield from _schema(f"{path}.{name}", one, required=name in needed)
    if isinstance(schema.get("items"), Mapping):
        yield from _schema(f"{path}[]", schema["items"])
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _schema(f"{path}.*", schema["additionalProperties"])


def _objects() -> Iterator[str]:
    """List the custom resources: names, versions, columns, fields."""
    for file in sorted((ROOT / "crds").glob("*.yaml")):
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        for version in spec["versions"]:
            title = f"{spec['names']['kind']} {spec['group']}/{version['name']}"
            yield from _section(f"{title}, {spec['scope']}", [f"names: {_brief(spec['names'])}"])
            yield f"served: {version['served']}, stored: {version['storage']}"
            yield f"subresources: {_brief(version.get('subresources', {}))}"
            for column in version.get("additionalPrinterColumns", ()):
                yield f"column {column['name']}: {column['type']} {column['jsonPath']} {column.get('priority', 0)}"
            for name, one in sorted(version["schema"]["openAPIV3Schema"]["properties"].items()):
                yield from _schema(name, one)


def described_interface() -> dict[str, Any]:
    """Return the OpenAPI document as the REST interface answers it."""
    limits = quick()
    application = Application(cast("KubeClient", populated()), SystemClock(), limits, CollectorRegistry())
    try:
        for route in application.paths.routes:
            if isinstance(route, APIRoute) and route.path == DESCRIPTION_PATH:
                return cast("dict[str, Any]", json.loads(asyncio.run(route.endpoint()).body))
    finally:
        application.close()
    raise AssertionError(f"no path {DESCRIPTION_PATH}")


def _rest() -> Iterator[str]:
    """List what the OpenAPI document says: paths, parameters, answers, documents."""
    described = described_interface()
    yield f"OpenAPI {described['openapi']}, described at {DESCRIPTION_PATH} and {PAGE_PATH}"
    for path, operations in sorted(described["paths"].items()):
        for method, one in sorted(operations.items()):
            yield from _section(f"{method.upper()} {path}", _operation(one))
    components = described["components"]
    yield from _section("security", [_brief(described["security"]), *sorted(components["securitySchemes"])])
    for name, schema in sorted(components["schemas"].items()):
        yield from _section(f"schema {name}", _schema(name, schema))


def _operation(operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"operation {operation['operationId']}"
    for one in sorted(operation.get("parameters", ()), key=lambda one: (one["in"], one["name"])):
        yield from _schema(f"{one['in']} {one['name']}", one["schema"], required=one.get("required", False))
    body = operation.get("requestBody", {})
    for media_type, content in sorted(body.get("content", {}).items()):
        yield from _schema(f"body {media_type}", content["schema"], required=body.get("required", False))
    answers: dict[str, list[str]] = {}
    for status, answer in sorted(operation["responses"].items()):
        contents = answer.get("content", {}).items()
        shown = [f"{media_type} {content['schema'].get('$ref', '')}" for media_type, content in sorted(contents)]
        shown += [f"header {name}" for name in sorted(answer.get("headers", ()))]
        answers.setdefault(" ".join(shown), []).append(status)
    yield from (f"{' '.join(statuses)}: {answer}" for answer, statuses in answers.items())


def _rights() -> Iterator[str]:
    """List what the two programs may do, and to whom which admission policy applies."""
    for file in sorted((_CHART / "files").glob("*-rules.yaml")):
        for scope, rules in sorted(yaml.safe_load(file.read_text(encoding="utf-8")).items()):
            yield from _section(f"{file.stem} {scope}", sorted(map(_right, rules)))
    for policy in yaml.safe_load((_CHART / "files" / "admission-policies.yaml").read_text(encoding="utf-8")):
        yield from _section(f"admission policy {policy['name']} of {_accounts(policy)}", _admission(policy))


def _accounts(policy: Mapping[str, Any]) -> str:
    return policy.get("account") or f"all besides {', '.join(policy['besides'])}"


def _right(rule: Mapping[str, Any]) -> str:
    named = f" named {', '.join(rule['resourceNames'])}" if "resourceNames" in rule else ""
    groups = ", ".join(one or "core" for one in rule.get("apiGroups", ()))
    what = ", ".join(rule.get("resources", rule.get("nonResourceURLs", ())))
    return f"{groups}: {what}{named}: {', '.join(rule['verbs'])}"


def _admission(policy: Mapping[str, Any]) -> Iterator[str]:
    for rule in policy["rules"]:
        yield f"{', '.join(rule['operations'])} of {', '.join(rule['resources'])}"
    yield from sorted(f"refuses unless: {one['message']}" for one in policy["validations"])


def _leaves(path: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, one in sorted(value.items()):
            yield from _leaves(f"{path}.{key}" if path else str(key), one)
    else:
        yield f"{path}: {_brief(value)}"


def _chart() -> Iterator[str]:
    """List the chart's values with their defaults, and what a value may be."""
    yield from _section("values", _leaves("", yaml.safe_load((_CHART / "values.yaml").read_text(encoding="utf-8"))))
    allowed = json.loads((_CHART / "values.schema.json").read_text(encoding="utf-8"))
    yield from _section("allowed values", _schema("values", allowed))


# Vocabularies, names


def _enumerations() -> list[tuple[str, ...]]:
    """Return the members' values of every enumeration of texts, in order."""
    found = {
        one
        for source in sources()
        for one in source.namespace.values()
        if isinstance(one, type) and issubclass(one, Enum) and one.__module__.partition(".")[0] in PACKAGES
    }
    texts = (tuple(member.value for member in one) for one in found)
    return [values for values in texts if values and all(isinstance(value, str) for value in values)]


def _reasons() -> Iterator[str]:
    """List every vocabulary by its title."""
    kinds = {kind for capability in CAPABILITIES for kind in capability.kinds}
    yield from _section("actions that wait in the operator's queue (label kind)", sorted({*KeyKind, *kinds}))
    enumerations = _enumerations()
    vocabularies: dict[str, Iterable[str]] = {"strategies": [goal.name for goal in OFFERED_GOALS]}
    for title, members in _VOCABULARIES.items():
        found = [values for values in enumerations if members <= set(values)]
        vocabularies[title] = found[0] if len(found) == 1 else (f"{len(found)} enumerations have {sorted(members)}",)
    for title, values in sorted(vocabularies.items()):
        yield from _section(title, sorted(value or '""' for value in values))
    yield from _section("reasons of a Reservation's conditions", sorted(ConditionReason))
    yield from _section("events on a pod of the operator's", [OWNER_DIFFERS, TEMPLATE_DIFFERS])
    yield from _section("conditions of a policy", sorted((SCHEDULED, VALID)))
    yield from _section("actions of the operator (label action)", sorted(label_of(one) for one in get_args(Action)))


def _names() -> Iterator[str]:
    """List the names by which objects of Berth are found: keys, Leases, computed names, plugins, scripts."""
    texts = {
        text for source in sources() for text in _texts(source.namespace.values()) if re.match(rf"\S*{_DOMAIN}\b", text)
    }
    yield from _section("keys of labels, annotations and taints; API groups", sorted(texts))
    yield from _section("Leases", sorted((names.OPERATOR_LEASE, names.DESCHEDULER_LEASE, names.LEADER_LEASE)))
    others = (names.WEBHOOK_CONFIGURATION, names.WEBHOOK_SECRET, names.DEFAULT_NAMESPACE, names.PLACEHOLDER_IMAGE)
    yield from _section("webhook configuration, its Secret, namespace, image of placeholders", others)
    yield from _section("computed names", _computed_names())
    yield from _section("console scripts", _scripts())
    yield from _section("plugins", [f"entry point group {ENTRY_POINT_GROUP}", *sorted(map(_plugin, OWN_PLUGINS))])


def _texts(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple | frozenset):
            yield from (one for one in value if isinstance(one, str))


def _computed_names() -> Iterator[str]:
    """List names of objects as they are made of given parts, so that another version finds them."""
    yield f"placeholder: {names.placeholder_name('hold', 'uid', 'main', 3)}"
    yield f"placeholder after another: {names.placeholder_name('hold', 'uid', 'main', 3, 'before')}"
    yield f"fence: {names.fence_name('node.example', 7)}"
    yield f"probe: {names.probe_name('uid')}"
    yield f"PriorityClass: {names.priority_class_name(1000)}, {names.priority_class_name(-5)}"
    yield f"plan: {names.plan_name('20261121-071500', 'seed')}"
    yield f"plan of a policy: {names.scheduled_plan_name('20261121-071500', 'uid', '2026-11-21T07:15:00Z')}"
    yield f"plan that was asked for: {names.requested_plan_name('ann', 'key')}"
    yield f"Reservation: {names.reservation_name('plan-1', 'uid')}"
    yield f"value of the taint on a room's node: {names.room_taint_value('plan-1', 'node-1')}"


def _plugin(name: str) -> str:
    """Return a plugin with the arguments that it takes: those that it names where an unknown one is given."""
    try:
        OWN_PLUGINS[name].parse({"?": 1})
    except InputError as error:
        return f"{name}: {error.expected}"
    raise AssertionError(f"{name} takes an argument that nobody knows")


# Metrics, logs


def _metrics() -> Iterator[str]:
    """List the metrics of both programs as they are scraped: name, type, labels, buckets."""
    for package in PACKAGES:
        lines = sorted(line for source in sources() if source.package == package for line in _metrics_of(source))
        if lines:
            yield from _section(package, lines)


def _metrics_of(source: Source) -> Iterator[str]:
    for call in source.calls():
        made = source.value(call.func)
        if not isinstance(made, type) or not issubclass(made, MetricWrapperBase):
            continue
        kind = made.__name__
        given = {one.arg: one.value for one in call.keywords}
        name = source.value(call.args[0] if call.args else given.get("name"))
        assert isinstance(name, str), f"a metric whose name is computed: {ast.unparse(call)}"
        name = f"{name.removesuffix('_total')}_total" if kind == "Counter" else name
        labels = source.value(call.args[2] if len(call.args) > 2 else given.get("labelnames")) or ()
        buckets = f" buckets {', '.join(map(str, source.value(given['buckets'])))}" if "buckets" in given else ""
        yield f"{name}{{{', '.join(labels)}}} {kind.lower()}{buckets}"


def _logs() -> Iterator[str]:
    """List the log events with their levels, and the keys, by program."""
    for package in PACKAGES:
        of_package = [source for source in sources() if source.package == package]
        levels: dict[str, set[str]] = {}
        for source in of_package:
            for level, event in _logged(source):
                levels.setdefault(event, set()).add(level)
        words = {word for source in of_package for word in _log_words(source, set(levels))}
        events = {event: sorted(levels.get(event, ())) for event in {*levels, *(word for word in words if " " in word)}}
        if events:
            lines = (
                f"{event} ({', '.join(told) or 'level or event chosen at run time'})" for event, told in events.items()
            )
            yield from _section(f"{package}: events", sorted(lines))
            if keys := words - set(events):
                yield from _section(f"{package}: keys", sorted(keys))


def _logged(source: Source) -> Iterator[tuple[str, str]]:
    for call in source.calls():
        if not isinstance(call.func, ast.Attribute) or not _is_logger(call.func.value):
            continue
        level, args = call.func.attr, call.args
        if level == "log":
            level, args = "any level", args[1:]
        if level in _LOG_LEVELS | {"any level"} and isinstance(event := source.value(args[0]), str):
            yield level, event


def _is_logger(expression: ast.expr) -> bool:
    name = expression.attr if isinstance(expression, ast.Attribute) else getattr(expression, "id", "")
    return name.strip("_").lower() in _LOGGERS


def _log_words(source: Source, events: set[str]) -> set[str]:
    """Return the constants that a module takes from where the names of log events are kept."""
    words = set()
    for one in ast.walk(source.tree):
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
            home, value = source.namespace.get(one.value.id), source.value(one)
            if isinstance(home, ModuleType) and isinstance(value, str) and _names_log_events(home, events):
                words.add(value)
    return words


def _names_log_events(module: ModuleType, events: set[str]) -> bool:
    """Return whether a module keeps names of log events, which may all be chosen at run time."""
    return module.__name__.endswith(".logs") or bool(events & set(_texts(vars(module).values())))


def difference(golden: Path, wanted: str) -> Sequence[str]:
    """Return the lines of a golden file that are gone and those that are new, each with its section."""
    had, now = (dict.fromkeys(_in_sections(text)) for text in (golden.read_text(encoding="utf-8"), wanted))
    changed = [*((one, "-") for one in had if one not in now), *((one, "+") for one in now if one not in had)]
    return [f"{sign} {section}: {line}" for (section, line), sign in sorted(changed)] or ["the order of the lines"]


def _in_sections(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in text.splitlines():
        section = line.removeprefix("# ") if line.startswith("# ") else section
        yield section, line
