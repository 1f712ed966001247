import re
import stat
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from berth_sandbox.binaries import find_binaries
from berth_sandbox.certificates import CLIENTS
from berth_sandbox.components import SERVICES, VOLCANO_COMPONENTS, Component, ComponentPlace, build_command, health_url
from berth_sandbox.configuration import CONTEXT_PREFIX, build_scheduler_config, write_configuration
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.key_files import write_certificates
from berth_sandbox.ports import Ports
from berth_sandbox.records import SandboxRecord
from berth_sandbox.settings import Pace, SandboxSettings, ScoringStrategy, choose_lease_seconds
from berth_sandbox.startup import expected_components

PORTS = Ports(
    etcd=2001,
    etcd_peer=2002,
    api_server=2003,
    controller_manager=2004,
    scheduler=2005,
    second_scheduler=2006,
    kwok=2007,
    volcano_scheduler=2008,
    volcano_controllers=2009,
    operator=2010,
    descheduler=2011,
)


LISTENING = ("--bind-address=", "--listen-", "--server-address=", "--healthz-address=", "--health-address=")


@pytest.fixture
def place(tmp_path: Path) -> ComponentPlace:
    programs = {component.binary for component in Component}
    return ComponentPlace({name: Path("/programs", name) for name in programs}, SandboxFolder(tmp_path), PORTS)


@pytest.fixture
def configured(tmp_path: Path) -> SandboxFolder:
    folder = SandboxFolder(tmp_path / "sandbox")
    folder.make()
    write_certificates(folder, now=datetime.now(UTC))
    write_configuration(folder, PORTS, SandboxSettings(name="one", scoring=ScoringStrategy.MOST_ALLOCATED))
    return folder


@pytest.mark.parametrize("component", Component)
def test_a_component_names_its_folder_so_that_its_process_is_known_as_ours(
    component: Component, place: ComponentPlace
) -> None:
    assert str(place.folder.root) in " ".join(build_command(component, place))


@pytest.mark.parametrize("component", Component)
def test_a_component_listens_on_loopback_only(component: Component, place: ComponentPlace) -> None:
    command = build_command(component, place)
    addresses = [argument for argument in command if any(str(port) in argument for port in asdict(PORTS).values())]
    assert addresses
    assert "0.0.0.0" not in " ".join(command)  # noqa: S104 - what must not be there
    bound = [a for a in command if a.startswith(LISTENING)]
    assert bound
    assert all("127.0.0.1" in argument for argument in bound)


@pytest.mark.parametrize("component", Component)
def test_features_are_left_as_they_come(component: Component, place: ComponentPlace) -> None:
    changed = ("--feature-gates", "--runtime-config", "--enable-admission-plugins", "--disable-admission-plugins")
    assert not [argument for argument in build_command(component, place) if argument.startswith(changed)]


def test_the_api_server_checks_rights(place: ComponentPlace) -> None:
    assert "--authorization-mode=RBAC" in build_command(Component.API_SERVER, place)


@pytest.mark.parametrize(("nodes", "want_lease", "want_grace"), [(0, 40, 50), (100, 40, 50), (1000, 400, 410)])
def test_nodes_renew_ten_leases_a_second_at_most_and_are_ready_meanwhile(
    nodes: int, want_lease: int, want_grace: int, place: ComponentPlace
) -> None:
    record = SandboxRecord(settings=SandboxSettings(nodes=nodes), ports=PORTS, binaries={}, started="")
    large = replace(record.place(place.folder), binaries=place.binaries)
    assert f"--node-lease-duration-seconds={want_lease}" in build_command(Component.KWOK, large)
    assert f"--node-monitor-grace-period={want_grace}s" in build_command(Component.CONTROLLER_MANAGER, large)


def test_a_sandbox_that_grows_later_says_how_long_its_leases_last() -> None:
    assert SandboxSettings(lease_seconds=choose_lease_seconds(500)).node_lease_seconds == 200


def test_the_second_scheduler_is_the_same_program_with_another_configuration(place: ComponentPlace) -> None:
    first = build_command(Component.SCHEDULER, place)
    second = build_command(Component.SECOND_SCHEDULER, place)
    assert first[0] == second[0]
    assert f"--config={place.folder.scheduler_config(Component.SECOND_SCHEDULER)}" in second
    assert not {argument for argument in first if argument.startswith(("--config", "--secure-port"))} & set(second)


def test_volcano_has_the_configuration_of_its_chart_and_a_session_every_half_second(
    place: ComponentPlace, configured: SandboxFolder
) -> None:
    command = build_command(Component.VOLCANO_SCHEDULER, place)
    assert "--schedule-period=500ms" in command
    assert f"--scheduler-conf={place.folder.scheduler_config(Component.VOLCANO_SCHEDULER)}" in command
    config = yaml.safe_load(configured.scheduler_config(Component.VOLCANO_SCHEDULER).read_text())
    assert config["actions"] == "enqueue, allocate, backfill"
    plugins = [[plugin["name"] for plugin in tier["plugins"]] for tier in config["tiers"]]
    assert plugins == [
        ["priority", "gang", "conformance"],
        ["overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"],
    ]


@pytest.mark.parametrize("component", VOLCANO_COMPONENTS)
def test_volcano_elects_no_leader(component: Component, place: ComponentPlace) -> None:
    assert "--leader-elect=false" in build_command(component, place)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (SandboxSettings(), {Component.SECOND_SCHEDULER, *VOLCANO_COMPONENTS, *SERVICES}),
        (SandboxSettings(second_scheduler=True), {*VOLCANO_COMPONENTS, *SERVICES}),
        (SandboxSettings(volcano=True), {Component.SECOND_SCHEDULER, *SERVICES}),
        (SandboxSettings(services=True), {Component.SECOND_SCHEDULER, *VOLCANO_COMPONENTS}),
    ],
)
def test_a_further_scheduler_or_service_runs_only_where_it_is_asked_for(
    settings: SandboxSettings, missing: set[Component]
) -> None:
    assert set(expected_components(settings)) == set(Component) - missing


def test_each_component_is_asked_for_its_health_on_a_port_of_its_own() -> None:
    urls = {health_url(component, PORTS) for component in Component}
    assert len(urls) == len(Component)


@pytest.mark.parametrize("scoring", ScoringStrategy)
def test_a_scheduler_ranks_nodes_as_asked_and_is_stock_otherwise(scoring: ScoringStrategy) -> None:
    config = build_scheduler_config("some-scheduler", Path("/k"), scoring)
    (profile,) = config["profiles"]
    assert profile["schedulerName"] == "some-scheduler"
    assert "plugins" not in profile
    (plugin,) = profile["pluginConfig"]
    assert plugin["name"] == "NodeResourcesFit"
    assert plugin["args"]["scoringStrategy"]["type"] == scoring.value


def test_every_kubeconfig_names_a_sandbox_context_and_can_be_read_by_its_owner_only(configured: SandboxFolder) -> None:
    paths = [configured.kubeconfig, *(configured.user_kubeconfig(client.name) for client in CLIENTS)]
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        body = yaml.safe_load(path.read_text())
        assert body["current-context"] == f"{CONTEXT_PREFIX}-one"
        assert body["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:2003"
        assert not [
            key for key in (*body["clusters"][0]["cluster"], *body["users"][0]["user"]) if key.endswith("-data")
        ]


def test_the_scoring_strategy_reaches_both_schedulers(configured: SandboxFolder) -> None:
    for scheduler in (Component.SCHEDULER, Component.SECOND_SCHEDULER):
        assert "type: MostAllocated" in configured.scheduler_config(scheduler).read_text()


def test_kwok_gets_the_stages_that_come_with_the_package(configured: SandboxFolder) -> None:
    stages = [d for d in yaml.safe_load_all(configured.kwok_config.read_text()) if d["kind"] == "Stage"]
    names = {stage["metadata"]["name"] for stage in stages}
    assert names == {"node-initialize", "pod-ready", "pod-complete", "pod-deadline", "pod-delete"}


def test_at_the_real_pace_one_decision_chooses_among_the_stages(tmp_path: Path) -> None:
    folder = SandboxFolder(tmp_path / "sandbox")
    folder.make()
    write_configuration(folder, PORTS, SandboxSettings(pace=Pace.REAL))
    stages = [d for d in yaml.safe_load_all(folder.kwok_config.read_text()) if d["kind"] == "Stage"]
    chosen = {
        stage["metadata"]["name"]: stage["spec"]["selector"]["matchExpressions"][-1]["jq"]
        for stage in stages
        if stage["spec"]["resourceRef"]["kind"] == "Pod"
    }
    assert {name: decides["values"] for name, decides in chosen.items()} == {name: [name] for name in chosen}
    (decision,) = {decides["key"] for decides in chosen.values()}
    assert set(re.findall(r'"(pod-[a-z-]+)"', decision)) == chosen.keys()


def test_programs_that_are_given_are_used_as_they_are(tmp_path: Path) -> None:
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
    for name in names:
        (tmp_path / name).touch(mode=0o755)
    found = find_binaries(lambda _line: None, {"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert found == {name: (tmp_path / name).resolve() for name in names}
