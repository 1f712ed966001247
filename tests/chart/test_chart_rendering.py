"""What helm makes of the chart: it accepts what is right, refuses what is not, and starts the programs as asked."""

import base64
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click
import pytest
import yaml

from berth_core.names import (
    DEFAULT_NAMESPACE,
    DESCHEDULER_LEASE,
    LEADER_LEASE,
    NODE_PRICES_CONFIG_MAP,
    OPERATOR_LEASE,
    REPLACEMENT_TRIAL,
    WEBHOOK_SECRET,
)
from berth_core.snapshot import Snapshot
from berth_descheduler.api.options import rest_settings
from berth_descheduler.capabilities.prices.price_map import PRICE_MAP, PriceMap
from berth_descheduler.cli.doctor import doctor_command
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.migration.replacement_trial.bounds import why_binding_lets_through, why_policy_lets_through
from berth_descheduler.options.policy import CARRIED_OUT, PLANNED, settings_to_serve
from berth_descheduler.options.running import cycle_settings
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.decoding import decode_policy
from berth_descheduler.policy.parsing import RunDefaults, read_policy
from berth_descheduler.server import read_service_settings, serve
from berth_operator.capabilities.extender.settings import ExtenderSettings
from berth_operator.cli import main as operator
from berth_operator.cli import read_settings
from berth_operator.settings import OperatorSettings
from berth_sandbox.bootstrap import TRIES_REPLACEMENTS, build_admission_policies, read_rules
from chart.charted import SERVICES, Helm, HelmError, Manifest, container, find, is_hook, options
from chart.value_sets import EVERYTHING, REFUSED, VALUE_SETS
from conventions.generate_copies import CHART

COMMANDS: dict[str, click.Command] = {"operator": operator, "descheduler": serve}
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SET_BY_THE_CHART = {
    "operator": {
        *("--namespace", "--webhook-service", "--webhook-host", "--health-address"),
        *("--volcano-extender-address", "--volcano-enqueue-after", "--certificate-folder"),
        *("--evictions", "--evictions-deadline", "--evictions-exempt"),
    },
    "descheduler": {
        *("--namespace", "--health-address"),
        *("--rest-address", "--rest-certificate", "--rest-key", "--rest-audience", "--rest-ui"),
        "--rest-prometheus-url",
    },
}
NOT_FOR_A_SERVICE = {
    "operator": {"--kubeconfig", "--context", "--identity"},
    "descheduler": {
        *("--kubeconfig", "--context", "--exact", "--single-pods", "--policies", "--once", "--interval"),
        "--no-taint-freed",
        *(f"--{name.replace('_', '-')}" for name in (*PLANNED, *CARRIED_OUT, "wait_for_approval")),
    },
}
"""A pod has its account and its name; `--exact` and `--policies` go without saying, and policies say the rest."""

CLUSTER_WIDE = {
    *("ClusterRole", "ClusterRoleBinding", "DeschedulerPolicy", "ValidatingWebhookConfiguration"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
HUB = "artifacthub.io/"
BY_DEFAULT = {
    *("NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "Pod"),
    *("RoleBinding", "Service", "Deployment", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
"""The kinds of the chart without monitoring and policies."""

FREE_MAPS = {"resources", "labels", "podSecurityContext", "securityContext"}
LEFT_AS_IT_IS = {
    ("nameOverride",),
    ("fullnameOverride",),
    ("operator", "image"),
    ("descheduler", "image"),
    ("descheduler", "digest"),
    ("descheduler", "enabled"),
    ("roles", "enabled"),
    ("admissionPolicies", "enabled"),
    ("networkPolicy", "enabled"),
}


def parameters(service: str) -> dict[str, click.Option]:
    """Return the options of a program by each of their names."""
    found = (option for option in COMMANDS[service].params if isinstance(option, click.Option))
    return {name: option for option in found for name in (*option.opts, *option.secondary_opts)}


def kebab(key: str) -> str:
    return "--" + "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in key)


def parse(service: str, arguments: list[str]) -> dict[str, Any]:
    """Return the options as the program itself reads them."""
    return COMMANDS[service].make_context(service, list(arguments)).params


@pytest.fixture(scope="module")
def renderings(helm: Helm) -> dict[str, list[Manifest]]:
    return {name: helm.render(values) for name, values in VALUE_SETS.items()}


def test_helm_finds_no_fault_with_the_chart(helm: Helm) -> None:
    helm.run("lint", "--strict", str(CHART))


@pytest.mark.parametrize("case", REFUSED)
def test_the_schema_refuses(helm: Helm, case: str) -> None:
    values, named = REFUSED[case]
    with pytest.raises(HelmError, match=named):
        helm.render(values)


def leaves(values: dict[str, Any], *parents: str) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in FREE_MAPS:
            yield from leaves(value, *parents, key)
        else:
            yield (*parents, key)


def at(values: dict[str, Any], path: tuple[str, ...]) -> object:
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def test_the_table_has_every_value_otherwise_than_by_default() -> None:
    same = {path for path in leaves(DEFAULTS) if at(EVERYTHING, path) in (None, at(DEFAULTS, path))}
    assert same == LEFT_AS_IT_IS


def without(values: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    head, *rest = path
    kept = {key: value for key, value in values.items() if rest or key != head}
    return {**kept, head: without(values[head], tuple(rest))} if rest else kept


def test_every_value_but_an_option_makes_a_difference(helm: Helm) -> None:
    everything = helm.render(EVERYTHING)
    asked = [path for path in leaves(DEFAULTS) if path not in LEFT_AS_IT_IS and "options" not in path]
    with ThreadPoolExecutor(2) as pool:
        rendered = pool.map(lambda path: rendered_or_refused(helm, without(EVERYTHING, path)), asked)
    assert not [path for path, manifests in zip(asked, rendered, strict=True) if manifests == everything]


def rendered_or_refused(helm: Helm, values: dict[str, Any]) -> list[Manifest]:
    """Return a rendering, or none where another value needs the one that was left out."""
    try:
        return helm.render(values)
    except HelmError:
        return []


def test_the_retention_of_reservations_has_one_default() -> None:
    (option,) = (parameter for parameter in operator.params if parameter.name == "retention_seconds")
    assert option.default == OperatorSettings().retention_seconds == DEFAULTS["operator"]["options"]["retention"]


@pytest.mark.parametrize("service", SERVICES)
def test_every_option_of_a_program_is_reachable_and_no_other(service: str) -> None:
    named = {kebab(key) for key in DEFAULTS[service]["options"]}
    known = {name for name in parameters(service) if name.startswith("--")} - {"--help"}
    assert named | SET_BY_THE_CHART[service] | NOT_FOR_A_SERVICE[service] == known
    assert not named & (SET_BY_THE_CHART[service] | NOT_FOR_A_SERVICE[service])


@pytest.mark.parametrize("service", SERVICES)
def test_what_stands_in_the_values_is_what_the_program_would_do_by_itself(service: str) -> None:
    by_itself = parse(service, [])
    context = COMMANDS[service].make_context(service, [])
    for key, value in DEFAULTS[service]["options"].items():
        option = parameters(service)[kebab(key)]
        if key != "noExact" and value not in ("", [], {}):
            assert by_itself[str(option.name)] == option.type_cast_value(context, str(value)), key


@pytest.mark.parametrize("case", VALUE_SETS)
@pytest.mark.parametrize("service", SERVICES)
def test_a_program_understands_what_it_is_started_with(
    renderings: dict[str, list[Manifest]], case: str, service: str
) -> None:
    if case == "no descheduler" and service == "descheduler":
        assert not [m for m in renderings[case] if m["kind"] == "Deployment" and "desch" in m["metadata"]["name"]]
        return
    read = parse(service, container(renderings[case], service)["args"])
    if service == "operator":
        read_settings(read)
    else:
        read_service_settings(read)
        rest_settings(read)
        with COMMANDS[service].make_context(service, list(container(renderings[case], service)["args"])) as context:
            settings_to_serve(context.params)
        cycle_settings(read, trigger="Policies")


def as_given(value: Any) -> list[str]:  # noqa: ANN401 - a chart's value is anything
    """Return what an option is to be given for a value: once or several times, nothing for a switch."""
    match value:
        case True:
            return [""]
        case list():
            return [str(one) for one in value]
        case dict():
            return [f"{name}:{text}" for name, text in value.items()]
        case _:
            return [str(value)]


@pytest.mark.parametrize(
    ("service", "case", "asked"),
    [
        ("operator", "every value", EVERYTHING["operator"]["options"]),
        ("descheduler", "every value", EVERYTHING["descheduler"]["options"]),
    ],
)
def test_each_option_gets_the_value_that_was_asked_for(
    renderings: dict[str, list[Manifest]], service: str, case: str, asked: dict[str, Any]
) -> None:
    given = options(renderings[case], service)
    wanted = {kebab(key): as_given(value) for key, value in asked.items()}
    assert {name: given.get(name) for name in wanted} == wanted


def test_the_http_interface_is_there_where_it_has_a_certificate(renderings: dict[str, list[Manifest]]) -> None:
    given = options(renderings["every value"], "descheduler")
    read = rest_settings(parse("descheduler", container(renderings["every value"], "descheduler")["args"]))
    assert read is not None
    assert (read.host, read.port, read.audiences, read.ui) == ("::", 18443, ("berth", "people"), True)
    assert read.prometheus_url == "https://grafana.example/d/berth"
    mounts = container(renderings["every value"], "descheduler")["volumeMounts"]
    folder = next(mount["mountPath"] for mount in mounts if mount["name"] == "rest-certificate")
    assert given["--rest-certificate"] == [f"{folder}/tls.crt"]
    assert find(renderings["every value"], "Service", "berth-rest")["spec"]["ports"][0]["port"] == 443
    assert not {"--rest-address", "--rest-ui"} & options(renderings["the defaults"], "descheduler").keys()
    assert "berth-rest" not in [manifest["metadata"]["name"] for manifest in renderings["the defaults"]]


@pytest.mark.parametrize(("service", "server"), [("descheduler", "rest"), ("operator", "webhook")])
def test_cert_manager_keeps_the_certificate_of_a_server_where_an_issuer_is_named(
    helm: Helm, service: str, server: str
) -> None:
    issuer = {"kind": "ClusterIssuer", "name": "internal"}
    asked = {server: {"tlsSecret": "kept", "issuerRef": issuer}}
    made = helm.render({service: asked, "fullnameOverride": "acme"}, namespace="elsewhere")
    (certificate,) = [manifest for manifest in made if manifest["kind"] == "Certificate"]
    spec = certificate["spec"]
    assert (certificate["metadata"]["name"], spec["secretName"], spec["issuerRef"]) == (
        f"acme-{server}",
        "kept",
        issuer,
    )
    assert f"acme-{server}.elsewhere.svc" in spec["dnsNames"]
    assert find(made, "Service", f"acme-{server}")
    volumes = find(made, "Deployment", f"acme-{service}")["spec"]["template"]["spec"]["volumes"]
    (mounted,) = [volume["secret"] for volume in volumes if "secret" in volume]
    assert mounted["secretName"] == "kept"


@pytest.mark.parametrize(
    ("url", "names", "addresses"),
    [
        ("https://berth.example:9443", ["berth.example"], None),
        ("https://10.0.0.7:9443", None, ["10.0.0.7"]),
        ("https://[fd00::7]:9443", None, ["fd00::7"]),
    ],
)
def test_an_issuer_signs_for_the_host_by_which_the_api_server_calls_the_webhook(
    helm: Helm, url: str, names: list[str] | None, addresses: list[str] | None
) -> None:
    webhook = {"tlsSecret": "kept", "issuerRef": {"name": "internal"}}
    made = helm.render({"operator": {"options": {"webhookUrl": url}, "webhook": webhook}})
    spec = find(made, "Certificate", "berth-webhook")["spec"]
    assert (spec.get("dnsNames"), spec.get("ipAddresses")) == (names, addresses)


def test_the_webhooks_certificate_is_read_where_it_is_mounted(renderings: dict[str, list[Manifest]]) -> None:
    mounts = container(renderings["every value"], "operator")["volumeMounts"]
    folder = next(mount["mountPath"] for mount in mounts if mount["name"] == "webhook-certificate")
    given = read_settings(parse("operator", container(renderings["every value"], "operator")["args"]))
    assert given.webhook.certificate_folder == folder
    assert not read_settings(
        parse("operator", container(renderings["the defaults"], "operator")["args"])
    ).webhook.certificate_folder


def test_without_a_descheduler_there_is_no_certificate_of_it(helm: Helm) -> None:
    rest = {"tlsSecret": "kept", "issuerRef": {"name": "internal"}}
    made = helm.render({"descheduler": {"rest": rest, "enabled": False}})
    assert "Certificate" not in {manifest["kind"] for manifest in made}


def test_volcanos_scheduler_reaches_the_extender_where_it_is_enabled(renderings: dict[str, list[Manifest]]) -> None:
    given = renderings["every value"]
    assert read_settings(parse("operator", container(given, "operator")["args"])).of(ExtenderSettings).address == (
        "::",
        19444,
    )
    assert find(given, "Service", "berth-volcano-extender")["spec"]["ports"][0]["port"] == 19444
    ingress = find(given, "NetworkPolicy", "berth-operator")["spec"]["ingress"]
    (rule,) = [rule for rule in ingress if rule["ports"][0]["port"] == "extender"]
    assert rule["from"] == EVERYTHING["networkPolicy"]["volcanoFrom"]
    assert "extender" not in str(renderings["the defaults"])


TRACED: dict[str, tuple[str, int]] = {
    "a port that is named": ("http://collector.observability:4318", 4318),
    "a port and a path": ("http://collector:14318/otlp", 14318),
    "the port of the scheme": ("https://traces.example/otlp", 443),
    "the same without TLS": ("http://collector", 80),
    "an address of IPv6": ("http://[fd00::1]:4318", 4318),
}


@pytest.mark.parametrize("case", TRACED)
@pytest.mark.parametrize("service", SERVICES)
def test_both_services_export_traces_and_reach_the_collector(helm: Helm, service: str, case: str) -> None:
    endpoint, port = TRACED[case]
    made = helm.render({"traces": {"endpoint": endpoint, "env": {"OTEL_TRACES_SAMPLER_ARG": 0.1}}})
    variables = {one["name"]: one.get("value") for one in container(made, service)["env"]}
    assert (variables["OTEL_EXPORTER_OTLP_ENDPOINT"], variables["OTEL_TRACES_SAMPLER_ARG"]) == (endpoint, "0.1")
    *_, egress = find(made, "NetworkPolicy", f"berth-{service}")["spec"]["egress"]
    assert egress == {"ports": [{"port": port, "protocol": "TCP"}]}


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_is_traced_by_default(renderings: dict[str, list[Manifest]], helm: Helm, service: str) -> None:
    assert "OTEL_" not in str(renderings["the defaults"])
    without_endpoint = helm.render({"traces": {"env": {"OTEL_TRACES_SAMPLER": "always_on"}}})
    assert "OTEL_" not in str(container(without_endpoint, service))


def test_the_webhook_is_reached_by_its_service_unless_an_address_is_named(
    renderings: dict[str, list[Manifest]],
) -> None:
    assert options(renderings["the defaults"], "operator")["--webhook-service"] == ["berth-webhook"]
    assert "--webhook-service" not in options(renderings["every value"], "operator")


@pytest.mark.parametrize("case", VALUE_SETS)
def test_every_object_is_labelled_and_in_the_releases_namespace(
    renderings: dict[str, list[Manifest]], case: str
) -> None:
    for manifest in renderings[case]:
        metadata = manifest["metadata"]
        assert metadata["labels"]["app.kubernetes.io/instance"] == "berth"
        cluster_wide = manifest["kind"] in CLUSTER_WIDE
        assert metadata.get("namespace") == (None if cluster_wide else "default"), manifest["kind"]


@pytest.mark.parametrize("case", VALUE_SETS)
def test_what_selects_pods_selects_those_that_are_made(renderings: dict[str, list[Manifest]], case: str) -> None:
    manifests = renderings[case]
    pods = [m["spec"]["template"] for m in manifests if m["kind"] == "Deployment"]
    placeholders = {"metadata": {"labels": {"berth.volcano.sh/placeholder": "true"}}}
    for manifest in manifests:
        match manifest["kind"]:
            case "Service":
                labels, ports = manifest["spec"]["selector"], manifest["spec"]["ports"]
            case "PodDisruptionBudget" | "Deployment":
                labels, ports = manifest["spec"]["selector"]["matchLabels"], []
            case "NetworkPolicy":
                labels, ports = manifest["spec"]["podSelector"]["matchLabels"], []
            case _:
                continue
        chosen = [pod for pod in (*pods, placeholders) if labels.items() <= pod["metadata"]["labels"].items()]
        assert len(chosen) == 1, manifest["metadata"]["name"]
        for port in ports:
            assert port["targetPort"] in [p["name"] for p in chosen[0]["spec"]["containers"][0]["ports"]]


def test_a_monitor_finds_the_metrics_of_both_services(renderings: dict[str, list[Manifest]]) -> None:
    monitor = find(renderings["every value"], "ServiceMonitor", "berth")["spec"]
    found = [
        manifest
        for manifest in renderings["every value"]
        if manifest["kind"] == "Service"
        and monitor["selector"]["matchLabels"].items() <= manifest["metadata"]["labels"].items()
    ]
    assert {manifest["metadata"]["name"] for manifest in found} == {"berth-operator", "berth-descheduler"}
    assert all(port["name"] == monitor["endpoints"][0]["port"] for m in found for port in m["spec"]["ports"])


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    ("case", "wanted"),
    {"the defaults": [1], "every value": [1], "one operator, one descheduler": []}.items(),
    ids=["the defaults", "every value", "one operator, one descheduler"],
)
def test_several_replicas_go_one_after_the_other(
    renderings: dict[str, list[Manifest]], case: str, wanted: list[int], service: str
) -> None:
    budgets = {m["metadata"]["name"]: m["spec"] for m in renderings[case] if m["kind"] == "PodDisruptionBudget"}
    assert [spec["maxUnavailable"] for name, spec in budgets.items() if name == f"berth-{service}"] == wanted
    rollout = find(renderings[case], "Deployment", f"berth-{service}")["spec"]
    assert rollout["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    spread = rollout["template"]["spec"]["topologySpreadConstraints"]
    assert [s["labelSelector"]["matchLabels"] for s in spread] == [rollout["selector"]["matchLabels"]]


@pytest.mark.parametrize("service", SERVICES)
def test_an_operator_has_time_to_end_what_it_is_at(renderings: dict[str, list[Manifest]], service: str) -> None:
    spec = find(renderings["every value"], "Deployment", f"berth-{service}")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == {"operator": 33, "descheduler": 600}[service]


def test_policies_are_installed_as_they_are_written(renderings: dict[str, list[Manifest]]) -> None:
    made = [manifest for manifest in renderings["every value"] if manifest["kind"] == "DeschedulerPolicy"]
    assert {manifest["metadata"]["name"]: manifest["spec"] for manifest in made} == EVERYTHING["policies"]
    for manifest in made:
        read_policy(decode_policy(manifest), RunDefaults(), installed_plugins())
    assert not [m for m in renderings["the defaults"] if m["kind"] == "DeschedulerPolicy"]


def test_each_role_for_people_is_a_cluster_role_and_two_are_added_to_the_clusters_own(
    renderings: dict[str, list[Manifest]],
) -> None:
    rules = yaml.safe_load((CHART / "files" / "people-rules.yaml").read_text(encoding="utf-8"))
    added = {"aggregate-to-view", "aggregate-to-edit"}

    def made(case: str) -> dict[str, Manifest]:
        roles = {
            m["metadata"]["name"].removeprefix("berth-"): m for m in renderings[case] if m["kind"] == "ClusterRole"
        }
        return {name: role for name, role in roles.items() if name in rules}

    assert {name: role["rules"] for name, role in made("the defaults").items()} == rules
    prefix = "rbac.authorization.k8s.io/"
    labels = {label for role in made("the defaults").values() for label in role["metadata"]["labels"]}
    assert {label.removeprefix(prefix) for label in labels if label.startswith(prefix)} == added
    assert set(made("every value")) == set(rules) - added
    assert made("no roles for people") == {}


def test_an_image_is_named_by_digest_or_tag(renderings: dict[str, list[Manifest]]) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    assert container(renderings["the defaults"], "operator")["image"] == f"berth-operator:{version}"
    everything = renderings["every value"]
    assert container(everything, "operator")["image"] == "registry.example/team/berth-operator@sha256:" + "0" * 64
    assert container(everything, "descheduler")["image"] == "registry.example/team/berth-descheduler:1.2.3"


def test_another_name_is_that_of_every_object_and_reference(renderings: dict[str, list[Manifest]]) -> None:
    manifests = renderings["another name"]
    fixed = [m for m in manifests if m["metadata"]["name"] == REPLACEMENT_TRIAL]
    assert [m["metadata"]["name"] for m in manifests if m not in fixed and not is_named(m, "acme")] == []
    assert {m["metadata"]["labels"]["app.kubernetes.io/name"] for m in manifests} == {"mooring"}
    usual = [m["metadata"]["name"] for m in renderings["the defaults"]]
    names = [m["metadata"]["name"] for m in manifests if m["kind"] in BY_DEFAULT]
    assert [f"berth{name.removeprefix('acme')}" if name.startswith("acme") else name for name in names] == usual
    accounts = [m["metadata"]["name"] for m in manifests if m["kind"] == "ServiceAccount" and m not in fixed]
    pods = [m["spec"]["template"] for m in manifests if m["kind"] == "Deployment"]
    pods += [m for m in manifests if m["kind"] == "Pod"]
    assert sorted(pod["spec"]["serviceAccountName"] for pod in pods) == sorted(accounts)
    for manifest in manifests:
        if manifest["kind"].endswith("RoleBinding"):
            assert find(manifests, manifest["kind"].removesuffix("Binding"), manifest["roleRef"]["name"])
            assert {subject["name"] for subject in manifest["subjects"]} <= {*accounts, REPLACEMENT_TRIAL}
    assert options(manifests, "operator")["--webhook-service"] == ["acme-webhook"]
    assert find(manifests, "Service", "acme-webhook")
    text = json.dumps(policies(manifests)).replace('\\"', "'")
    assert "clientConfig.service.name == 'acme-webhook'" in text
    named = set(re.findall(r"system:serviceaccount:default:([\w-]+)", text))
    assert named == {"acme-operator", "acme-descheduler", REPLACEMENT_TRIAL}


def test_a_name_stands_before_those_of_objects_unless_they_have_a_full_one(helm: Helm) -> None:
    manifests = helm.render({"nameOverride": "mooring"})
    assert {m["metadata"]["name"] for m in manifests if not is_named(m, "mooring-")} == {REPLACEMENT_TRIAL}


def is_named(manifest: Manifest, prefix: str) -> bool:
    """Return whether an object's name begins so, as all do but those for which the programs look."""
    return bool(manifest["metadata"]["name"].startswith(prefix))


def test_leases_secret_and_prices_have_the_names_by_which_programs_look_for_them(
    renderings: dict[str, list[Manifest]],
) -> None:
    for case in ("the defaults", "another name"):
        roles = [m for m in renderings[case] if m["kind"] == "Role"]
        named = {name for role in roles for rule in role["rules"] for name in rule.get("resourceNames", ())}
        leases = {OPERATOR_LEASE, DESCHEDULER_LEASE, LEADER_LEASE}
        assert named == leases | {WEBHOOK_SECRET, REPLACEMENT_TRIAL, NODE_PRICES_CONFIG_MAP}


@pytest.mark.parametrize("service", SERVICES)
def test_a_pod_has_the_security_and_the_additions_that_are_asked_for(
    renderings: dict[str, list[Manifest]], service: str
) -> None:
    asked = EVERYTHING[service]
    spec = find(renderings["every value"], "Deployment", f"berth-{service}")["spec"]["template"]["spec"]
    main = container(renderings["every value"], service)
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert main["securityContext"] == {
        **asked["securityContext"],
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["volumes"][-1:] == asked["extraVolumes"]
    assert main["volumeMounts"][-1:] == asked["extraVolumeMounts"]
    assert main["args"][-1:] == asked["extraArgs"]
    assert main["env"][-2:] == asked["env"] + asked["extraEnv"]
    assert spec["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    own = {"labelSelector": {"matchLabels": find_selector(renderings["every value"], service)}}
    assert spec["topologySpreadConstraints"] == [{**asked["topologySpreadConstraints"][0], **own}]


def find_selector(manifests: list[Manifest], service: str) -> dict[str, str]:
    selector: dict[str, str] = find(manifests, "Deployment", f"berth-{service}")["spec"]["selector"]["matchLabels"]
    return selector


def test_a_constraint_keeps_the_selector_that_it_has(helm: Helm) -> None:
    constraint = {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    made = helm.render({"operator": {"topologySpreadConstraints": [constraint]}})
    spec = find(made, "Deployment", "berth-operator")["spec"]["template"]["spec"]
    assert spec["topologySpreadConstraints"] == [constraint]


def test_helm_test_asks_the_doctor_with_rights_to_read_alone(renderings: dict[str, list[Manifest]]) -> None:
    hooks = [manifest for manifest in renderings["every value"] if is_hook(manifest)]
    assert {m["metadata"]["annotations"]["helm.sh/hook"] for m in hooks} == {"test"}
    (pod,) = (m for m in hooks if m["kind"] == "Pod")
    (main,) = pod["spec"]["containers"]
    assert main["image"] == container(renderings["every value"], "descheduler")["image"]
    program, *rest = main["command"]
    assert (program, rest) == ("berth", ["doctor"])
    assert doctor_command.make_context("doctor", list(main["args"])).params["namespace"] == "default"
    rules = [rule for m in hooks if m["kind"] in {"Role", "ClusterRole"} for rule in m["rules"]]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list"}
    assert all(
        "hook-succeeded" in m["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for m in hooks if m != pod
    )


def test_the_notes_end_with_a_policy_that_moves_nothing(helm: Helm) -> None:
    notes = helm.notes({})
    commands = re.findall(r"^  ((?:kubectl|helm|berth) .*)$", notes, re.MULTILINE)
    assert [command.split()[0] for command in commands[:3]] == ["kubectl", "helm", "kubectl"]
    (text,) = re.findall(r"<<EOF\n(.*?)\n  EOF", notes, re.DOTALL)
    policy = yaml.safe_load(text)
    assert policy["spec"]["mode"] == "Plan"
    read_policy(decode_policy(policy), RunDefaults(), installed_plugins())
    assert "EOF" not in helm.notes({"policies": EVERYTHING["policies"]})
    assert "  berth plan\n" in helm.notes({"descheduler": {"enabled": False}})


def test_artifact_hub_is_told_of_every_kind() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    told = {(one["name"], one["kind"], one["version"]) for one in yaml.safe_load(chart["annotations"][HUB + "crds"])}
    crds = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (CHART / "crds").glob("*.yaml")]
    served = {
        (crd["metadata"]["name"], crd["spec"]["names"]["kind"], one["name"])
        for crd in crds
        for one in crd["spec"]["versions"]
    }
    assert told == served
    head, _, icon = chart["icon"].partition(",")
    assert head == "data:image/svg+xml;base64"
    assert b"<svg " in base64.b64decode(icon, validate=True)
    assert yaml.safe_load(chart["annotations"][HUB + "license"]) == "Apache-2.0"


def test_no_variable_of_a_service_looks_like_an_option(renderings: dict[str, list[Manifest]]) -> None:
    for service in SERVICES:
        spec = find(renderings["the defaults"], "Deployment", f"berth-{service}")["spec"]["template"]["spec"]
        assert spec["enableServiceLinks"] is False


def test_what_is_off_by_default_is_not_there(renderings: dict[str, list[Manifest]]) -> None:
    kinds = {manifest["kind"] for manifest in renderings["the defaults"]}
    assert not kinds & {"ServiceMonitor", "PrometheusRule", "ConfigMap"}
    assert "NetworkPolicy" in kinds
    assert "NetworkPolicy" not in {manifest["kind"] for manifest in renderings["no network policies"]}


@pytest.mark.parametrize(
    ("case", "page"), [("every value", "https://docs.example/alerts"), ("empty maps", "operator/docs/alerts.md")]
)
def test_each_alert_leads_to_its_heading_on_the_page_that_is_given(
    renderings: dict[str, list[Manifest]], case: str, page: str
) -> None:
    groups = find(renderings[case], "PrometheusRule", "berth")["spec"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    assert [rule["annotations"]["runbook_url"] for rule in rules] == [
        f"{page}#{rule['alert'].lower()}" for rule in rules
    ]


def test_prices_are_installed_as_the_descheduler_reads_them(renderings: dict[str, list[Manifest]]) -> None:
    config_map = find(renderings["every value"], "ConfigMap", NODE_PRICES_CONFIG_MAP)
    snapshot = Snapshot(beside={PRICE_MAP.name: (config_map,)})
    namespace = config_map["metadata"]["namespace"]

    price_map = PriceMap.of(ClusterView.of(snapshot, own_namespace=namespace))

    assert price_map.error is None
    assert price_map.instance_types == {
        "m5.large": 96_000,
        "m5.large/spot": 35_000,
        "Standard_D4s_v3/on-demand": 1_000_000,
        "small": 1,
    }


def test_the_dashboard_is_installed_as_it_stands_in_its_file(renderings: dict[str, list[Manifest]]) -> None:
    data = find(renderings["every value"], "ConfigMap", "berth-dashboard")["data"]
    assert json.loads(data["berth.json"]) == json.loads(
        (CHART / "monitoring" / "dashboard.json").read_text(encoding="utf-8")
    )


def policies(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return what the chart makes of the admission policies, by kind and name."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    return {f"{m['kind']} {m['metadata']['name']}": m["spec"] for m in manifests if m["kind"] in kinds}


def test_the_sandbox_has_the_charts_admission_policies(helm: Helm) -> None:
    values = {
        "operator": {"options": {"webhookUrl": "https://127.0.0.1:1"}, "evictions": {"enabled": True}},
        "admissionPolicies": {"reservationsWithoutOwners": True},
    }
    rendered = policies(helm.render(values, namespace=DEFAULT_NAMESPACE))
    built = {
        f"{one['kind']} {one['metadata']['name']}": one["spec"] for pair in build_admission_policies() for one in pair
    }
    text = json.dumps(rendered).replace("https://127.0.0.1:1/", "https://127.0.0.1:")
    assert json.loads(text) == built


def test_reservations_without_owners_are_off_by_default(helm: Helm) -> None:
    name = "ValidatingAdmissionPolicy berth-reservations-without-owners"
    expressions = [
        policies(helm.render(values))[name]["validations"][0]["expression"].partition(" ")[0]
        for values in ({}, {"admissionPolicies": {"reservationsWithoutOwners": True}})
    ]
    assert expressions == ["false", "true"]


def test_the_admission_policies_can_be_left_out_with_what_hangs_on_them(helm: Helm) -> None:
    manifests = helm.render({"admissionPolicies": {"enabled": False}})
    assert policies(manifests) == {}
    (everywhere,) = (m for m in manifests if m["kind"] == "ClusterRole" and m["metadata"]["name"] == "berth-operator")
    assert not [rule for rule in everywhere["rules"] if "pods" in rule["resources"] and "create" in rule["verbs"]]


def of_the_trial(manifests: list[Manifest]) -> set[str]:
    """Return what is installed for trying replacements by dry run, by kind and name."""
    named = (f"{manifest['kind']} {manifest['metadata']['name']}" for manifest in manifests)
    return {name for name in named if name.endswith(("replacement-trial", "tries-replacements"))}


def test_the_account_that_tries_replacements_comes_with_what_bounds_it(helm: Helm) -> None:
    """Its own name is fixed, as the descheduler looks for it; only who may use it is named like the chart's objects."""
    manifests = helm.render({"fullnameOverride": "other"}, namespace="elsewhere")
    assert of_the_trial(manifests) == {
        "ServiceAccount berth-replacement-trial",
        "ClusterRole berth-replacement-trial",
        "ClusterRoleBinding berth-replacement-trial",
        "ClusterRole other-descheduler-tries-replacements",
        "ClusterRoleBinding other-descheduler-tries-replacements",
        "Role other-descheduler-tries-replacements",
        "RoleBinding other-descheduler-tries-replacements",
        "ValidatingAdmissionPolicy berth-replacement-trial",
        "ValidatingAdmissionPolicyBinding berth-replacement-trial",
    }
    policy = find(manifests, "ValidatingAdmissionPolicy", "berth-replacement-trial")
    binding = find(manifests, "ValidatingAdmissionPolicyBinding", "berth-replacement-trial")
    assert why_policy_lets_through(policy, "elsewhere") == why_binding_lets_through(binding) == ""


@pytest.mark.parametrize(
    "values",
    [
        {"admissionPolicies": {"enabled": False}},
        {"admissionPolicies": {"actions": ["Warn", "Audit"]}},
        {"descheduler": {"replacementTrial": {"enabled": False}}},
    ],
    ids=["no policies", "policies that warn", "switched off"],
)
def test_without_what_bounds_it_no_account_may_create_pods_by_dry_run(helm: Helm, values: dict[str, Any]) -> None:
    assert of_the_trial(helm.render(values)) == set()


def test_the_sandbox_grants_the_trial_what_the_chart_grants(helm: Helm) -> None:
    manifests, rules = helm.render({}), read_rules(REPLACEMENT_TRIAL)
    assert find(manifests, "ClusterRole", REPLACEMENT_TRIAL)["rules"] == rules["accountClusterRules"]
    assert find(manifests, "ClusterRole", TRIES_REPLACEMENTS)["rules"] == rules["userClusterRules"]
    assert find(manifests, "Role", TRIES_REPLACEMENTS)["rules"] == rules["userNamespaceRules"]


def test_the_admission_policies_take_up_the_values(helm: Helm) -> None:
    given = {
        "actions": ["Warn", "Audit"],
        "images": ["mirror.example/pause:1"],
        "nodeAnnotations": ["a.example/b"],
        "templateFields": ["newField"],
    }
    values = {"admissionPolicies": given, "operator": {"options": {"image": "pause:9"}}}
    made = policies(helm.render(values, namespace="elsewhere"))
    actions = {spec["policyName"]: tuple(spec["validationActions"]) for spec in made.values() if "policyName" in spec}
    assert actions.pop("berth-reservation-times") == ("Warn",)
    assert set(actions.values()) == {("Warn", "Audit")}
    assert '["newField"]' in made["ValidatingAdmissionPolicy berth-reservation-templates"]["variables"][2]["expression"]
    text = json.dumps(made).replace('\\"', "'")
    assert "['pause:9','mirror.example/pause:1']" in text
    assert "['a.example/b']" in text
    assert "system:serviceaccount:elsewhere:berth-operator" in text
    assert "${" not in text
