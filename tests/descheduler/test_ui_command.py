"""`berth ui`: the service's page through kubectl, or one's own page, which no other site can use."""

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest
import requests
from click.testing import CliRunner

from berth_core import Taint
from berth_core.labels import DRAINING_TAINT, REVOCABLE_ZONE_LABEL
from berth_descheduler.cli import ui
from berth_descheduler.cli.ui import (
    ForwardingError,
    NoPageError,
    find_service,
    forwarding,
    redirecting,
    refuse_without_page,
    serving,
)
from berth_kube.client import KubeClient
from berth_kube.errors import ForbiddenError
from berth_kube.resources import (
    MIGRATION_PLANS,
    NODES,
    REVOCABLE_ZONES,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
    SERVICES,
    Resource,
)
from berth_service.certificates import key_to_pem, make_authority, sign_server, to_pem
from builders import node
from descheduler.fake_cluster import call, failure
from descheduler.rest_server import ReviewingCluster, populated, quick
from descheduler.rest_server import serving as serving_rest

NAMESPACE: Final = "berth-system"
FORWARDS: Final = "print('Forwarding from 127.0.0.1:41234 -> 8443', flush=True)"


class OwnCluster(ReviewingCluster):
    """A cluster whose API server says of the client itself who it is and what it may do."""

    refused: frozenset[tuple[str, str]] = frozenset()

    def create(self, resource: Resource, body: Any, *, type: Any = dict, **rest: Any) -> Any:  # noqa: A002, ANN401
        if resource is SELF_SUBJECT_REVIEWS:
            return msgspec.convert({"status": {"userInfo": {"username": "ada", "groups": []}}}, type)
        if resource is SELF_SUBJECT_ACCESS_REVIEWS:
            wanted = body["spec"]["resourceAttributes"]
            return msgspec.convert(
                {"status": {"allowed": (wanted["verb"], wanted["resource"]) not in self.refused}}, type
            )
        assert "reviews" not in resource.plural, "a person may not review others"
        return super().create(resource, body, type=type, **rest)


def own_cluster() -> OwnCluster:
    cluster, made = OwnCluster(), populated()
    cluster.objects = made.objects
    return cluster


@pytest.fixture
def cluster() -> OwnCluster:
    return own_cluster()


@pytest.fixture
def address(cluster: OwnCluster) -> Iterator[str]:
    with serving(cast("KubeClient", cluster), NAMESPACE) as served:
        yield served


def ask(address: str, path: str, *, method: str = "GET", token: str | None = None, **headers: str) -> requests.Response:
    """Ask the page's own server, with its token unless another is given."""
    url, _, own_token = address.partition("/ui#token=")
    given = {"Authorization": f"Bearer {own_token if token is None else token}", **headers}
    with requests.Session() as session:
        session.trust_env = False
        return session.request(method, url + path, headers=given, timeout=60)


def test_the_page_is_served_on_loopback_with_what_the_kubeconfig_may_read(address: str, cluster: OwnCluster) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/ui#token=[\w-]{43}", address)
    assert "<title>Berth</title>" in ask(address, "/ui").text
    assert [node["name"] for node in ask(address, "/v1/nodes").json()["items"]] == ["n0", "n1", "n2"]
    cluster.refused = frozenset({("list", NODES.plural)})
    with serving(cast("KubeClient", cluster), NAMESPACE) as again:
        refused = ask(again, "/v1/nodes")
    assert (refused.status_code, "ada has no right to list nodes" in refused.json()["detail"]) == (403, True)


def test_what_the_kubeconfig_may_not_read_is_left_out_of_the_findings_and_said(cluster: OwnCluster) -> None:
    cluster.start_operator()
    lent = node("lent", labels={REVOCABLE_ZONE_LABEL: "gone"}, taints=[Taint(key=DRAINING_TAINT)])
    cluster.add(NODES, msgspec.to_builtins(lent))
    cluster.refused = frozenset({("list", REVOCABLE_ZONES.plural)})
    refusal = ForbiddenError(call("list", REVOCABLE_ZONES, ""), failure(403))
    cluster.faults[f"list {REVOCABLE_ZONES.plural}"] = refusal
    with serving(cast("KubeClient", cluster), NAMESPACE) as served:
        answer = ask(served, "/v1/findings").json()
    assert [finding["invariant"] for finding in answer["items"]] == ["DrainingLeft"]
    assert answer["missingRights"] == ["list revocablezones"]


def test_an_approval_is_in_the_name_of_whom_the_kubeconfig_names(address: str, cluster: OwnCluster) -> None:
    tag = ask(address, "/v1/plans/plan-waiting").headers["ETag"]
    answer = ask(address, "/v1/plans/plan-waiting/approve", method="POST", **{"If-Match": tag})
    assert answer.status_code == 202
    assert cluster.get(MIGRATION_PLANS, "plan-waiting")["spec"]["approvedBy"] == "ada"


def test_every_run_has_a_token_of_its_own_and_takes_no_other(cluster: OwnCluster, address: str) -> None:
    with serving(cast("KubeClient", cluster), NAMESPACE) as other:
        tokens = {page_address.partition("#token=")[2] for page_address in (address, other)}
        assert len(tokens) == 2
        assert ask(address, "/v1/nodes", token=other.partition("#token=")[2]).status_code == 401
    assert ask(address, "/v1/nodes", token="admin-token").status_code == 401


ATTACKS: Final[dict[str, dict[str, str]]] = {
    "a name that was bound to loopback": {"Host": "evil.example:{port}"},
    "a name without a port": {"Host": "localhost"},
    "another port": {"Host": "127.0.0.1:1"},
    "a name that only ends so": {"Host": "evil-localhost:{port}"},
    "user and name": {"Host": "localhost@evil.example:{port}"},
    "an address of every interface": {"Host": "0.0.0.0:{port}"},
    "no name": {"Host": ""},
    "a page of another site": {"Origin": "https://evil.example"},
    "a page of another port": {"Origin": "http://127.0.0.1:1"},
    "a page in a frame without an origin": {"Origin": "null"},
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("path", ["/ui", "/v1/nodes", "/docs"])
def test_no_other_site_gets_anything_even_with_the_token(
    address: str, cluster: OwnCluster, path: str, attack: dict[str, str]
) -> None:
    port = address.split(":")[2].partition("/")[0]
    calls = len(cluster.calls)
    answer = ask(address, path, **{name: value.format(port=port) for name, value in attack.items()})
    assert answer.status_code == 403, answer.text
    assert "Berth</title>" not in answer.text
    assert "items" not in answer.text
    assert [call for call in cluster.calls[calls:] if call.verb != "list"] == []


def test_the_page_itself_may_ask_under_both_names_of_this_machine(address: str) -> None:
    port = address.split(":")[2].partition("/")[0]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
        assert ask(address, "/v1/nodes", Host=host, Origin=f"http://{host.lower()}").status_code == 200


# --- a service that is installed --------------------------------------------------------------------------------------


def service(name: str, chart: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": {"helm.sh/chart": chart}}, "spec": {}}


def test_the_service_of_the_chart_is_found_and_no_other(cluster: OwnCluster) -> None:
    client = cast("KubeClient", cluster)
    assert find_service(client, NAMESPACE) is None
    cluster.add(SERVICES, service("other-rest", "shop-1.0.0"))
    cluster.add(SERVICES, service("berth-webhook", "berth-0.1.0"))
    assert find_service(client, NAMESPACE) is None
    cluster.add(SERVICES, service("berth-rest", "berth-0.1.0"))
    assert find_service(client, NAMESPACE) == "berth-rest"


def test_the_browser_is_not_started_with_the_token_of_the_run() -> None:
    address = "http://127.0.0.1:8080/ui#token=secret"
    with redirecting(address) as file:
        assert f'url={address}"' in file.read_text(encoding="utf-8")
        assert file.stat().st_mode & 0o077 == 0
        assert file.parent.stat().st_mode & 0o077 == 0
        assert "secret" not in file.as_uri()
    assert not file.exists()


def kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a kubectl on the PATH that runs a script of Python."""
    program = folder / "kubectl"
    program.write_text(f"#!{sys.executable}\nimport sys, time\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_kubectl_forwards_a_port_and_ends_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = f"open({str(tmp_path / 'arguments')!r}, 'w').write(' '.join(sys.argv[1:]))"
    kubectl(tmp_path, monkeypatch, f"{arguments}; {FORWARDS}; time.sleep(600)")
    with forwarding(["--context=mine", f"--namespace={NAMESPACE}"], "berth-rest") as (port, process):
        assert (port, process.poll()) == (41234, None)
    assert process.wait(60) is not None
    assert (tmp_path / "arguments").read_text() == (
        f"port-forward --context=mine --namespace={NAMESPACE} --address=127.0.0.1 service/berth-rest :443"
    )


def test_kubectl_may_say_as_much_as_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(tmp_path, monkeypatch, f"{FORWARDS}; print('Handling connection for 41234\\n' * 10_000, flush=True)")
    with forwarding([], "berth-rest") as (_, process):
        assert process.wait(60) == 0


def test_a_port_that_cannot_be_forwarded_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(tmp_path, monkeypatch, "sys.exit(1)")
    with pytest.raises(ForwardingError, match="exit code 1"), forwarding([], "berth-rest"):
        pytest.fail("a port was forwarded")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ForwardingError, match="not on the PATH"), forwarding([], "berth-rest"):
        pytest.fail("a port was forwarded")


@contextmanager
def forwarded(cluster: OwnCluster, folder: Path, *, has_page: bool) -> Iterator[int]:
    """Yield the port on which a service answers over TLS, as kubectl forwards it."""
    pem = folder / "server.pem"
    now = datetime.now(UTC)
    authority = make_authority("berth", now=now, life=timedelta(days=1))
    pair = sign_server(authority, "berth", ["berth-rest.berth-system.svc"], now=now, life=timedelta(days=1))
    pem.write_bytes(key_to_pem(pair.key) + to_pem(pair.certificate))
    with serving_rest(cluster, replace(quick(), ui=has_page, certificate=pem, key=pem)) as url:
        yield int(url.rpartition(":")[2])


def test_a_service_without_the_page_is_an_error_that_says_how_to_get_it(cluster: OwnCluster, tmp_path: Path) -> None:
    with forwarded(cluster, tmp_path, has_page=False) as port, pytest.raises(NoPageError) as raised:
        refuse_without_page("berth-rest", port)
    assert {"service/berth-rest", "descheduler.rest.ui=true", "--local"} <= {*str(raised.value).split()}


def test_a_service_with_the_page_is_taken(cluster: OwnCluster, tmp_path: Path) -> None:
    with forwarded(cluster, tmp_path, has_page=True) as port:
        refuse_without_page("berth-rest", port)


def test_a_service_that_does_not_answer_is_left_to_the_browser() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(bound.getsockname(), timeout=60)
        refuse_without_page("berth-rest", bound.getsockname()[1])


def test_the_command_opens_no_page_that_the_service_has_not(
    cluster: OwnCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add(SERVICES, service("berth-rest", "berth-0.1.0"))
    monkeypatch.setattr(ui, "connect", lambda **_: nullcontext(cluster))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with forwarded(cluster, tmp_path, has_page=False) as port:
        line = f"print('Forwarding from 127.0.0.1:{port} -> 8443', flush=True); time.sleep(600)"
        kubectl(tmp_path, monkeypatch, line)
        result = CliRunner().invoke(ui.ui_command, [])
    assert isinstance(result.exception, NoPageError)
    assert (result.output, opened) == ("", [])
