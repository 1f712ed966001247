"""Owns which API server to talk to and as whom: kubeconfig files, contexts, the service account inside a cluster.

It does not own the connection itself, nor credentials' formats: those are the official client's.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

from berth_core.errors import InputError
from berth_kube.yaml_documents import load_documents, read_bounded

HOME_KUBECONFIG: Final = "~/.kube/config"


@dataclass(frozen=True, slots=True)
class KubeconfigSource:
    """One kubeconfig: `files` separated as in KUBECONFIG, and a context (None: the current one)."""

    files: str
    context: str | None = None

    def load(self) -> Configuration:
        """Return the official client's configuration; raises InputError naming the file and the context."""
        documents = self._documents()
        context = self._chosen_context(documents)
        configuration = Configuration()
        try:
            load_kube_config(config_file=self.files, context=context, client_configuration=configuration)
        except (ConfigException, LookupError, TypeError, ValueError, AttributeError, OSError) as error:
            raise InputError("kubeconfig", self.files, f"a usable kubeconfig ({error})") from error
        if not configuration.api_key and not configuration.cert_file and _has_plugin(documents, context):
            # The official client only logs that a plugin failed, and goes on as nobody.
            raise InputError("kubeconfig", self.files, f"a credentials plugin that works for the context {context}")
        return _checked(configuration, self.files)

    def _documents(self) -> list[Mapping[str, Any]]:
        """Return the files' contents, without the files that do not exist; raises InputError where none does."""
        paths = [Path(name).expanduser() for name in self.files.split(os.pathsep) if name]
        present = [path for path in paths if path.exists()]
        if not present:
            raise InputError("kubeconfig", self.files, "a file that exists")
        return [_read_yaml(path) for path in present]

    def _chosen_context(self, documents: Sequence[Mapping[str, Any]]) -> str:
        """Return the context's name; raises InputError where the files do not have it.

        Of several files the first that names a current context counts, as for kubectl.
        """
        contexts = [name for document in documents for name in _named(document, "contexts")]
        current = next((d["current-context"] for d in documents if d.get("current-context")), None)
        wanted = self.context or current
        if wanted not in contexts:
            known = ", ".join(sorted(contexts)) or "none"
            said = "" if wanted else "not given and the kubeconfig has no current one"
            raise InputError("context", wanted, f"a context of {self.files} (it has: {known})", said=said)
        return str(wanted)


@dataclass(frozen=True, slots=True)
class InClusterSource:
    """The service account of the pod that this program runs in; its token is read anew every minute."""

    def load(self) -> Configuration:
        """Return the official client's configuration; raises InputError where the service account is incomplete."""
        configuration = Configuration()
        try:
            load_incluster_config(client_configuration=configuration)
        except (ConfigException, OSError) as error:
            raise InputError("service account", SERVICE_TOKEN_FILENAME, f"that of a pod ({error})") from error
        return _checked(configuration, "the pod's environment")


ConfigurationSource = KubeconfigSource | InClusterSource


def find_source(kubeconfig: str | None = None, context: str | None = None) -> ConfigurationSource:
    """Return where the configuration is: the given file, KUBECONFIG, the pod's service account, ~/.kube/config.

    Raises InputError where there is none of them.
    """
    files = kubeconfig or os.environ.get("KUBECONFIG")
    if files:
        return KubeconfigSource(files, context)
    if context is None and os.environ.get(SERVICE_HOST_ENV_NAME) and Path(SERVICE_TOKEN_FILENAME).exists():
        return InClusterSource()
    if Path(HOME_KUBECONFIG).expanduser().exists():
        return KubeconfigSource(HOME_KUBECONFIG, context)
    raise InputError(
        "kubeconfig", HOME_KUBECONFIG, "a file that exists; name one with --kubeconfig or KUBECONFIG, or run in a pod"
    )


def _read_yaml(path: Path) -> Mapping[str, Any]:
    """Return a kubeconfig file's content; raises InputError where it is no YAML mapping."""
    try:
        documents = load_documents(read_bounded(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError("kubeconfig", str(path), f"a readable YAML file ({reason})") from error
    document = documents[0] if len(documents) == 1 else None
    if not isinstance(document, dict):
        raise InputError("kubeconfig", str(path), "a YAML mapping with clusters, users and contexts")
    return document


def _named(document: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the entries of a kubeconfig's section by name, skipping malformed ones."""
    entries = document.get(section)
    named = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {str(entry["name"]): entry for entry in named if "name" in entry}


def _has_plugin(documents: Sequence[Mapping[str, Any]], context: str) -> bool:
    """Tell whether the context's user gets credentials from a program."""
    contexts = {name: entry for document in reversed(documents) for name, entry in _named(document, "contexts").items()}
    users = {name: entry for document in reversed(documents) for name, entry in _named(document, "users").items()}
    user = users.get(contexts[context]["context"].get("user"), {}).get("user")
    return isinstance(user, dict) and "exec" in user


# --- what is set on top of what the official client reads -----------------------------------------------------------


def _checked(configuration: Configuration, origin: str) -> Configuration:
    """Return the configuration with a checked address, our proxy rule and keep-alive."""
    address = urlsplit(configuration.host)
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise InputError("server", configuration.host, f"an http or https address (in {origin})")
    configuration.proxy = _proxy_for(address.scheme, address.hostname)
    configuration.socket_options = _KEEP_ALIVE
    return configuration


def _proxy_for(scheme: str, host: str) -> str | None:
    """Return the environment's proxy for a host; none for the machine itself, whatever the environment says.

    The official client takes HTTP_PROXY for https too and asks loopback addresses through it.
    """
    return None if is_loopback(host) else getproxies().get(scheme)


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address means this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _keep_alive_options() -> list[tuple[int, int, int]]:
    """Return socket options that notice within a minute that the other side is gone without a word."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


_KEEP_ALIVE: Final = _keep_alive_options()
