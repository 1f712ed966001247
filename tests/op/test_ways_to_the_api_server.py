"""The own client, kopf and the official client reach the API server by the same way, whatever the kubeconfig says."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import kopf
import pytest
from kubernetes.client import ApiClient, CoreV1Api
from yarl import URL

from berth_core import InputError
from berth_kube import NO_RETRIES, ClientSettings, ConfigurationSource, KubeError, connect, find_source
from berth_kube.proxies import find_proxy, is_excluded, is_loopback
from berth_kube.resources import NODES
from berth_operator.runtime import kopf_session
from berth_operator.runtime.kopf_runtime import ReservationStream
from berth_operator.runtime.kopf_session import Connection
from relays import ConnectProxy
from scripted_server import ScriptedServer, page
from tls_files import TlsFiles

PATH = "/api/v1/nodes"
FAR = "cluster.example"
PLUGIN_VERSION = "client.authentication.k8s.io/v1"


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{kind}_proxy", raising=False)
        monkeypatch.delenv(f"{kind.upper()}_PROXY", raising=False)


# --- the three users of a configuration ------------------------------------------------------------------------------


def ask_by_own_client(source: ConfigurationSource, kubeconfig: str) -> None:
    del source
    with connect(kubeconfig=kubeconfig, settings=ClientSettings(retries=NO_RETRIES)) as client:
        client.list(NODES)


def ask_by_official_client(source: ConfigurationSource, kubeconfig: str) -> None:
    del kubeconfig
    CoreV1Api(ApiClient(source.load())).list_node(_request_timeout=60)


def ask_by_kopf(source: ConfigurationSource, kubeconfig: str) -> None:
    del kubeconfig

    async def ask() -> None:
        info = await Connection(source, ReservationStream(lambda: None)).log_in()
        async with info.aiohttp_session as session, session.get(f"{info.server}{PATH}") as answer:
            assert answer.status == 200
            await answer.read()

    asyncio.run(ask())


USERS: Mapping[str, Callable[[ConfigurationSource, str], None]] = {
    "own client": ask_by_own_client,
    "official client": ask_by_official_client,
    "kopf": ask_by_kopf,
}


@dataclass(frozen=True, slots=True)
class Way:
    """What a kubeconfig and the environment say, and how the API server is asked then."""

    host: str = FAR
    listens_on: str = "127.0.0.1"
    certified: str = FAR
    cluster: Mapping[str, Any] = field(default_factory=dict)
    user: Callable[[TlsFiles], Mapping[str, Any]] = lambda _: {"token": "secret"}
    environment: Mapping[str, str] = field(default_factory=dict)
    """`PROXY` in a value stands for the proxy's `HOST:PORT`, as in `cluster`."""
    proxy_listens_on: str = "127.0.0.1"
    proxy_credentials: str = ""
    through_proxy: bool = True
    want_authorization: str = "Bearer secret"
    want_user: str = ""


def plugin(status: Mapping[str, Any]) -> Mapping[str, Any]:
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": status}
    return {
        "exec": {
            "apiVersion": PLUGIN_VERSION,
            "interactiveMode": "Never",
            "command": sys.executable,
            "args": ["-c", f"print({json.dumps(json.dumps(credential))})"],
        }
    }


def pem_parts(path: Path) -> Mapping[str, str]:
    """Return the certificate and the key of a file as a plugin gives them."""
    certificate, _, key = path.read_text().partition("-----BEGIN PRIVATE KEY")
    return {"clientCertificateData": certificate, "clientKeyData": f"-----BEGIN PRIVATE KEY{key}"}


def by_certificate(files: TlsFiles) -> Mapping[str, Any]:
    path = str(files.client("ada"))
    return {"client-certificate": path, "client-key": path}


WAYS: Mapping[str, Way] = {
    "proxy-url": Way(cluster={"proxy-url": "http://PROXY"}),
    "proxy-url, whatever NO_PROXY says": Way(cluster={"proxy-url": "http://PROXY"}, environment={"NO_PROXY": "*"}),
    "proxy-url to a loopback address": Way(
        host="127.0.0.1", certified="127.0.0.1", cluster={"proxy-url": "http://PROXY"}
    ),
    "proxy-url with a user and a password": Way(
        cluster={"proxy-url": "http://ada:l%40velace@PROXY"}, proxy_credentials="ada:l@velace"
    ),
    "a proxy-url of an IPv6 address": Way(cluster={"proxy-url": "http://PROXY"}, proxy_listens_on="::1"),
    "proxy-url and a server's IPv6 address": Way(
        host="2001:db8::7", certified="2001:db8::7", cluster={"proxy-url": "http://PROXY"}
    ),
    "proxy-url and tls-server-name": Way(
        certified="kubernetes", cluster={"proxy-url": "http://PROXY", "tls-server-name": "kubernetes"}
    ),
    "HTTPS_PROXY": Way(environment={"HTTPS_PROXY": "http://PROXY"}),
    "https_proxy without a scheme": Way(environment={"https_proxy": "PROXY"}),
    "HTTPS_PROXY with a password": Way(environment={"HTTPS_PROXY": "http://a:b@PROXY"}, proxy_credentials="a:b"),
    "HTTPS_PROXY for another host than NO_PROXY": Way(
        environment={"HTTPS_PROXY": "http://PROXY", "NO_PROXY": "10.0.0.0/8,.svc,other.example"}
    ),
    "HTTPS_PROXY and a host of NO_PROXY": Way(
        host="127.0.0.1",
        certified="127.0.0.1",
        environment={"HTTPS_PROXY": "http://PROXY", "NO_PROXY": "127.0.0.0/8"},
        through_proxy=False,
    ),
    "HTTPS_PROXY and this machine": Way(
        host="127.0.0.1", certified="127.0.0.1", environment={"HTTPS_PROXY": "http://PROXY"}, through_proxy=False
    ),
    "HTTP_PROXY, which is not for https": Way(
        host="127.0.0.1", certified="127.0.0.1", environment={"HTTP_PROXY": "http://PROXY"}, through_proxy=False
    ),
    "an IPv6 address": Way(
        host="::1", listens_on="::1", certified="::1", through_proxy=False, environment={"HTTPS_PROXY": "http://PROXY"}
    ),
    "tls-server-name": Way(
        host="127.0.0.1", certified="kubernetes", cluster={"tls-server-name": "kubernetes"}, through_proxy=False
    ),
    "a client certificate": Way(
        cluster={"proxy-url": "http://PROXY"}, user=by_certificate, want_user="ada", want_authorization=""
    ),
    "a client certificate and tls-server-name": Way(
        host="127.0.0.1",
        certified="kubernetes",
        cluster={"tls-server-name": "kubernetes"},
        through_proxy=False,
        user=by_certificate,
        want_user="ada",
        want_authorization="",
    ),
    "a plugin's token": Way(
        cluster={"proxy-url": "http://PROXY"},
        user=lambda _: plugin({"token": "plugged-in"}),
        want_authorization="Bearer plugged-in",
    ),
    "a plugin's client certificate": Way(
        cluster={"proxy-url": "http://PROXY"},
        user=lambda files: plugin(pem_parts(files.client("ada"))),
        want_user="ada",
        want_authorization="",
    ),
    "a user and a password": Way(
        cluster={"proxy-url": "http://PROXY"},
        user=lambda _: {"username": "ada", "password": "love"},
        want_authorization="Basic YWRhOmxvdmU=",
    ),
}


@pytest.mark.parametrize("ask", USERS.values(), ids=USERS.keys())
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_all_three_clients_go_the_way_that_the_kubeconfig_and_the_environment_name(
    way: Way, ask: Callable[[ConfigurationSource, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TlsFiles(tmp_path)
    with serving(way, files) as (server, proxy):
        for name, value in way.environment.items():
            monkeypatch.setenv(name, value.replace("PROXY", place_of(proxy, way)))
        kubeconfig = write_kubeconfig(tmp_path, way, files, server, proxy)
        ask(find_source(kubeconfig), kubeconfig)
        (seen,) = server.requests("GET", PATH)
    headers = {name.lower(): value for name, value in seen.headers.items()}
    assert headers.get("authorization", "") == way.want_authorization
    assert "proxy-authorization" not in headers
    assert seen.user == way.want_user
    assert all("secret" not in head for head in proxy.heads), "the token is the API server's"
    assert proxy.asked == ([f"{bracketed(way.host)}:{server.port}"] if way.through_proxy else [])


@contextmanager
def serving(way: Way, files: TlsFiles) -> Iterator[tuple[ScriptedServer, ConnectProxy]]:
    tls = files.serve(way.certified, asks_clients=bool(way.want_user))
    with ScriptedServer(host=way.listens_on, tls=tls) as server:
        server.on("GET", PATH, page())
        hosts = {bracketed(way.host): (way.listens_on, server.port)}
        with ConnectProxy(hosts, credentials=way.proxy_credentials, host=way.proxy_listens_on) as proxy:
            yield server, proxy


def write_kubeconfig(folder: Path, way: Way, files: TlsFiles, server: ScriptedServer, proxy: ConnectProxy) -> str:
    cluster = {
        "server": f"https://{bracketed(way.host)}:{server.port}",
        "certificate-authority": str(files.authority),
        **{name: value.replace("PROXY", place_of(proxy, way)) for name, value in way.cluster.items()},
    }
    document = {
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": way.user(files)}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    path = folder / "kubeconfig.yaml"
    path.write_text(json.dumps(document))
    return str(path)


def place_of(proxy: ConnectProxy, way: Way) -> str:
    return f"{bracketed(way.proxy_listens_on)}:{proxy.port}"


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


ORIGINS = {
    "a port that is the scheme's own": ("https://10.0.0.1:443", "https://10.0.0.1/api"),
    "no port": ("https://10.0.0.1", "https://10.0.0.1:443/api"),
    "letters": ("https://Cluster.Example:6443", "https://cluster.example:6443/api"),
    "an IPv6 address that could be shorter": ("https://[2001:DB8:0::7]:443", "https://[2001:db8::7]:443/api"),
}


@pytest.mark.parametrize(("server", "url"), ORIGINS.values(), ids=ORIGINS.keys())
def test_kopf_shows_its_credentials_to_the_server_and_to_no_other(server: str, url: str) -> None:
    async def ask(url: str) -> str | None:
        request = SimpleNamespace(url=URL(url), headers={})
        answer = SimpleNamespace()

        async def send(_request: object) -> SimpleNamespace:
            return answer

        authorize = kopf_session._authorize(kopf.ConnectionInfo(server=server, token="secret"))
        assert await authorize(cast("Any", request), cast("Any", send)) is answer
        return request.headers.get("Authorization")

    assert asyncio.run(ask(url)) == "Bearer secret"
    assert asyncio.run(ask("https://elsewhere.example/api")) is None


# --- which proxy -----------------------------------------------------------------------------------------------------

NO_PROXY: Mapping[str, tuple[str, str, bool]] = {
    "everything": ("*", "cluster.example", True),
    "the host": ("cluster.example", "cluster.example", True),
    "the host in other letters": ("Cluster.Example", "CLUSTER.example", True),
    "the host among others, with spaces": ("a, cluster.example ,b", "cluster.example", True),
    "the domain above": ("example", "cluster.example", True),
    "the domain above, with a dot": (".example", "cluster.example", True),
    "the domain above, with a star": ("*.example", "cluster.example", True),
    "a dot and the host itself": (".cluster.example", "cluster.example", False),
    "the end of a word": ("uster.example", "cluster.example", False),
    "the port": ("cluster.example:6443", "cluster.example", True),
    "another port": ("cluster.example:443", "cluster.example", False),
    "an address": ("10.1.2.3", "10.1.2.3", True),
    "an address and its port": ("10.1.2.3:6443", "10.1.2.3", True),
    "a range": ("10.0.0.0/8", "10.1.2.3", True),
    "another range": ("192.168.0.0/16", "10.1.2.3", False),
    "an IPv6 address": ("2001:db8::7", "2001:db8:0::7", True),
    "an IPv6 address and its port": ("[2001:db8::7]:6443", "2001:db8::7", True),
    "an IPv6 address and another port": ("[2001:db8::7]:443", "2001:db8::7", False),
    "an IPv6 range": ("fd00::/8", "fd00:1::1", True),
    "a range of IPv4 and an address of it in IPv6": ("10.0.0.0/8", "::ffff:10.1.2.3", True),
    "a domain and an address": ("3", "10.1.2.3", False),
    "nothing": ("", "cluster.example", False),
    "commas": (",,", "cluster.example", False),
}


@pytest.mark.parametrize(("excluded", "host", "want"), NO_PROXY.values(), ids=NO_PROXY.keys())
def test_no_proxy_names(excluded: str, host: str, want: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_excluded(host, 6443, excluded) is want


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "LOCALHOST", "localhost.", "[::1]"])
def test_an_address_of_this_machine_has_many_spellings(host: str) -> None:
    assert is_loopback(host)


BAD_PROXIES = ("socks5://proxy:1080", "proxy:3128", "http://", "http://proxy:99999", "http://[::1")


@pytest.mark.parametrize("address", BAD_PROXIES)
def test_a_proxy_url_that_no_connection_can_go_through_is_refused_at_the_start(address: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig.yaml"
    cluster = {"server": "https://cluster.example:6443", "proxy-url": address}
    document = {
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": cluster}],
        "contexts": [{"name": "a", "context": {"cluster": "a"}}],
    }
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"proxy-url is .*; expected the http or https address of a proxy"):
        connect(kubeconfig=str(path))


def test_a_refused_proxy_shows_no_password() -> None:
    with pytest.raises(InputError) as caught:
        find_proxy(urlsplit("https://cluster.example"), "socks5://ada:lovelace@proxy")
    assert "lovelace" not in str(caught.value)


def test_a_proxy_that_refuses_is_named_by_its_answer(tmp_path: Path) -> None:
    way = Way(cluster={"proxy-url": "http://PROXY"}, proxy_credentials="ada:lovelace")
    files = TlsFiles(tmp_path)
    with serving(way, files) as (server, proxy):
        kubeconfig = write_kubeconfig(tmp_path, way, files, server, proxy)
        with pytest.raises(KubeError, match="407"):
            ask_by_own_client(find_source(kubeconfig), kubeconfig)
    assert server.seen == []


def test_of_several_files_the_first_cluster_of_a_name_brings_its_proxy(tmp_path: Path) -> None:
    def write(name: str, document: Mapping[str, Any]) -> str:
        (tmp_path / name).write_text(json.dumps(document))
        return str(tmp_path / name)

    cluster = {"server": "https://cluster.example"}
    contexts = [{"name": "a", "context": {"cluster": "a"}}]
    first = write("first", {"clusters": [{"name": "a", "cluster": {**cluster, "proxy-url": "http://first:1"}}]})
    second = write(
        "second",
        {
            "current-context": "a",
            "contexts": contexts,
            "clusters": [{"name": "a", "cluster": {**cluster, "proxy-url": "http://second:2"}}],
        },
    )
    assert find_source(f"{first}:{second}").load().proxy == "http://first:1"
