import json
import os
import sys
from pathlib import Path

import pytest

from berth_core.errors import InputError
from berth_kube import KEEP_ALIVE, connect, is_loopback
from berth_kube.configuration import InClusterSource, KubeconfigSource, find_source
from berth_kube.resources import NODES
from scripted_server import ScriptedServer, page, refusal, write_kubeconfig

LIST = "/api/v1/nodes"


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    proxies = [f"{kind}_proxy" for kind in ("http", "https", "all", "no")]
    clusters = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
    for name in (*clusters, *proxies, *(proxy.upper() for proxy in proxies)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def kubeconfig(folder: Path, name: str, server: str = "http://127.0.0.1:1", **more: object) -> str:
    folder.mkdir(exist_ok=True)
    document = {
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": name}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(document | more))
    return str(path)


# --- which one ------------------------------------------------------------------------------------------------------


def test_the_file_that_is_given_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    given = kubeconfig(tmp_path, "given")
    assert find_source(given, "ctx") == KubeconfigSource(given, "ctx")


def test_the_environments_file_goes_before_the_pods_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_pod(monkeypatch, tmp_path, "https://10.0.0.1:443")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    assert find_source() == KubeconfigSource("/elsewhere")


def test_the_pods_account_goes_before_the_home_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_pod(monkeypatch, tmp_path, "https://10.0.0.1:443")
    home_file(tmp_path)
    assert find_source() == InClusterSource()


def test_a_context_is_looked_for_in_the_home_file_also_in_a_pod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_pod(monkeypatch, tmp_path, "https://10.0.0.1:443")
    home_file(tmp_path)
    assert find_source(context="x") == KubeconfigSource("~/.kube/config", "x")


def test_without_any_configuration_the_message_says_what_to_give() -> None:
    with pytest.raises(InputError, match="name one with --kubeconfig or KUBECONFIG"):
        find_source()


def home_file(tmp_path: Path) -> None:
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    (tmp_path / "home" / ".kube" / "config").write_text(Path(kubeconfig(tmp_path, "home-one")).read_text())


def in_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str) -> Path:
    scheme, host, port = url.replace("//", "").split(":")
    assert scheme == "https"
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("from-the-pod")
    authority.write_text("a certificate")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    for module in ("berth_kube.configuration", "kubernetes.config.incluster_config"):
        monkeypatch.setattr(f"{module}.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(authority))
    return token


def test_inside_a_pod_the_token_and_the_authority_are_the_service_accounts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_pod(monkeypatch, tmp_path, "https://10.0.0.1:443")
    loaded = find_source().load()
    assert loaded.host == "https://10.0.0.1:443"
    assert loaded.api_key["BearerToken"] == "bearer from-the-pod"
    assert loaded.ssl_ca_cert == str(tmp_path / "ca.crt")


def test_a_service_account_without_a_token_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    token = in_pod(monkeypatch, tmp_path, "https://10.0.0.1:443")
    token.write_text("")
    with pytest.raises(InputError, match="Token file exists but empty"):
        find_source().load()


def test_of_several_files_the_first_current_context_counts(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path, "first", "http://127.0.0.1:11")
    second = kubeconfig(tmp_path, "second", "http://127.0.0.1:22")
    files = os.pathsep.join(["/missing", first, second])
    assert KubeconfigSource(files).load().host == "http://127.0.0.1:11"
    assert KubeconfigSource(files, "second").load().host == "http://127.0.0.1:22"


# --- what is wrong with it ------------------------------------------------------------------------------------------

ONE_CONTEXT = "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\nusers: []\n"

BAD_FILES = {
    "no YAML": ("{", "a readable YAML file"),
    "no text": ("\x00", "a readable YAML file"),
    "empty": ("", "a YAML mapping with clusters, users and contexts"),
    "a list": ("[]", "a YAML mapping with clusters, users and contexts"),
    "nothing in it": ("{}", "not given and the kubeconfig has no current one"),
    "contexts that are no list": ("{contexts: 5, current-context: a}", "it has: none"),
    "a context without a cluster": ("{contexts: [{name: a, context: {}}], current-context: a}", "a usable kubeconfig"),
    "an unknown cluster": (f"{ONE_CONTEXT}clusters: [{{name: b, cluster: {{}}}}]", "a usable kubeconfig"),
    "a context that is text": ("{contexts: [{name: a, context: b}], current-context: a}", "a usable kubeconfig"),
    "a certificate that is no base64": (
        f"{ONE_CONTEXT}clusters: [{{name: a, cluster: {{server: 'https://x', certificate-authority-data: abc}}}}]",
        "a usable kubeconfig",
    ),
    "an authority's file that is missing": (
        f"{ONE_CONTEXT}clusters: [{{name: a, cluster: {{server: 'https://x', certificate-authority: /missing}}}}]",
        "/missing",
    ),
    "no address": (f"{ONE_CONTEXT}clusters: [{{name: a, cluster: {{server: 'x:443'}}}}]", "an http or https address"),
}


@pytest.mark.parametrize(("text", "want"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_kubeconfig_gets_one_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, want: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("bad-config")
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        connect(kubeconfig=str(path))
    assert want in str(caught.value)
    assert "bad-config" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_kubeconfig_is_named() -> None:
    with pytest.raises(InputError, match=r"kubeconfig is '/no/such'; expected a file that exists"):
        connect(kubeconfig="/no/such")


def test_an_unknown_context_names_the_file_and_the_contexts_there_are(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "known")
    with pytest.raises(InputError) as caught:
        connect(kubeconfig=path, context="other")
    assert str(caught.value) == f"context is 'other'; expected a context of {path} (it has: known)"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_credentials_plugin_that_fails_is_said(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": ["-c", "exit(1)"]}
    path = kubeconfig(tmp_path, "plugged", users=[{"name": "plugged", "user": {"exec": plugin}}])
    with pytest.raises(InputError, match="a credentials plugin that works for the context plugged"):
        connect(kubeconfig=path)


def test_a_credentials_plugin_gives_the_token(tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": "plugged-in"}})
    plugin = {"apiVersion": version, "command": sys.executable, "args": ["-c", f"print('''{answer}''')"]}
    path = kubeconfig(tmp_path, "plugged", users=[{"name": "plugged", "user": {"exec": plugin}}])
    assert KubeconfigSource(path).load().api_key["BearerToken"] == "Bearer plugged-in"


# --- credentials that change, proxies -------------------------------------------------------------------------------


def test_a_token_file_that_changed_is_read_anew_after_a_401(server: ScriptedServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    path = write_kubeconfig(tmp_path, server.url, user={"tokenFile": str(token)})
    server.on("GET", LIST, page(), refusal(401, "Unauthorized", "Unauthorized"), page())
    with connect(kubeconfig=path) as client:
        client.list(NODES)
        token.write_text("new")
        client.list(NODES)
    sent = [seen.headers["authorization"] for seen in server.requests("GET", LIST)]
    assert sent == ["Bearer old", "Bearer old", "Bearer new"]


def test_the_environments_proxy_is_not_asked_for_loopback(
    monkeypatch: pytest.MonkeyPatch, server: ScriptedServer, tmp_path: Path
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.on("GET", LIST, page())
    with connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
        assert client.list(NODES).items == ()


def test_the_environments_proxy_is_asked_for_other_hosts_of_its_scheme(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("http_proxy", "http://plain:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:1")
    path = kubeconfig(tmp_path, "far", "https://cluster.example:6443")
    assert KubeconfigSource(path).load().proxy == "http://secure:1"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1", "a.localhost"])
def test_an_address_of_this_machine_is_known_as_such(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "cluster.example", "localhost.example", "2001:db8::1"])
def test_other_addresses_are_not_taken_for_this_machine(host: str) -> None:
    assert not is_loopback(host)


def test_a_dead_peer_is_noticed_by_the_kernel() -> None:
    assert len(KEEP_ALIVE) >= 2
