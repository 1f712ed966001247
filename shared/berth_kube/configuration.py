"""Where the API server is and as whom: kubeconfig files, contexts, the service account in a cluster.

The official client reads them. It is imported when the first configuration is read: its models take a third of the time
in which a command starts, and a command that plans from a file needs none of them.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from berth_core import InputError
from berth_kube.proxies import find_proxy, proxy_headers, usable_address
from berth_kube.yaml_documents import load_documents, read_bounded

if TYPE_CHECKING:
    from kubernetes.client import Configuration

HOME_KUBECONFIG: Final = "~/.kube/config"
SERVICE_HOST_ENV_NAME: Final = "KUBERNETES_SERVICE_HOST"
SERVICE_TOKEN_FILENAME: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path


@dataclass(frozen=True, slots=True)
class KubeconfigSource:
    """One kubeconfig and a context; `files` are separated as in KUBECONFIG, a `context` of None is the current one."""

    files: str
    context: str | None = None

    def load(self) -> "Configuration":
        """Return the official client's configuration; raises InputError with file and context."""
        documents = self._documents()
        context = self._chosen_context(documents)
        from kubernetes.client import Configuration  # noqa: PLC0415 - see above
        from kubernetes.config import ConfigException, load_kube_config  # noqa: PLC0415 - see above

        configuration = Configuration()
        try:
            load_kube_config(config_file=self.files, context=context, client_configuration=configuration)
        except (ConfigException, LookupError, TypeError, ValueError, AttributeError, OSError) as error:
            raise InputError("kubeconfig", self.files, f"a usable kubeconfig ({error})") from error
        user = _chosen_entry(documents, context, "user")
        if not configuration.api_key and not configuration.cert_file and "exec" in user:
            # The official client only logs that a plugin failed, and goes on without credentials.
            raise InputError("kubeconfig", self.files, f"a credentials plugin that works for the context {context}")
        # The official client does not read a cluster's `proxy-url`.
        proxy_url = _chosen_entry(documents, context, "cluster").get("proxy-url") or ""
        return _checked(configuration, self.files, str(proxy_url))

    def _documents(self) -> list[Mapping[str, Any]]:
        """Return the contents of the existing files; raises InputError without any."""
        paths = [Path(name).expanduser() for name in self.files.split(os.pathsep) if name]
        existing_paths = [path for path in paths if path.exists()]
        if not existing_paths:
            raise InputError("kubeconfig", self.files, "a file that exists")
        return [_read_yaml(path) for path in existing_paths]

    def context_names(self) -> tuple[str, ...]:
        """Return the names of the contexts, sorted; raises `InputError`."""
        return tuple(sorted(set(_context_names(self._documents()))))

    def _chosen_context(self, documents: Sequence[Mapping[str, Any]]) -> str:
        """Return the context's name; raises InputError if the files lack it.

        Of several files the first with a `current-context` counts, as for kubectl.
        """
        contexts = _context_names(documents)
        current = next((document["current-context"] for document in documents if document.get("current-context")), None)
        wanted_context = self.context or current
        if wanted_context not in contexts:
            known_contexts = ", ".join(sorted(contexts)) or "none"
            problem = "" if wanted_context else "not given and the kubeconfig has no current one"
            raise InputError(
                "context", wanted_context, f"a context of {self.files} (it has: {known_contexts})", said=problem
            )
        return str(wanted_context)


@dataclass(frozen=True, slots=True)
class InClusterSource:
    """The service account of this program's pod; the official client reads its token again every minute."""

    def load(self) -> "Configuration":
        """Return the official client's configuration; raises InputError if it is incomplete."""
        from kubernetes.client import Configuration  # noqa: PLC0415 - see above
        from kubernetes.config import ConfigException, load_incluster_config  # noqa: PLC0415 - see above

        configuration = Configuration()
        try:
            load_incluster_config(client_configuration=configuration)
        except (ConfigException, OSError) as error:
            raise InputError("service account", SERVICE_TOKEN_FILENAME, f"that of a pod ({error})") from error
        return _checked(configuration, "the pod's environment")


ConfigurationSource = KubeconfigSource | InClusterSource


def find_source(kubeconfig: str | None = None, context: str | None = None) -> ConfigurationSource:
    """Return the source: the given file, KUBECONFIG, the service account, or ~/.kube/config.

    Raises InputError without any of them.
    """
    files = kubeconfig or os.environ.get("KUBECONFIG")
    if files:
        return KubeconfigSource(files, context)
    # Both are asked: the kubelet sets the variable in every container, and a pod with `automountServiceAccountToken:
    # false` has no token.
    if context is None and os.environ.get(SERVICE_HOST_ENV_NAME) and Path(SERVICE_TOKEN_FILENAME).exists():
        return InClusterSource()
    if Path(HOME_KUBECONFIG).expanduser().exists():
        return KubeconfigSource(HOME_KUBECONFIG, context)
    raise InputError(
        "kubeconfig", HOME_KUBECONFIG, "a file that exists; name one with --kubeconfig or KUBECONFIG, or run in a pod"
    )


def context_names(kubeconfig: str | None = None) -> tuple[str, ...]:
    """Return the contexts of the kubeconfig, none in a pod; raises `InputError`."""
    source = find_source(kubeconfig)
    return source.context_names() if isinstance(source, KubeconfigSource) else ()


def _context_names(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for document in documents for name in _named(document, "contexts")]


def _read_yaml(path: Path) -> Mapping[str, Any]:
    """Return the content of a kubeconfig file; raises InputError if it is not a YAML mapping."""
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
    named_entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {str(entry["name"]): entry for entry in named_entries if "name" in entry}


def _chosen_entry(documents: Sequence[Mapping[str, Any]], context: str, kind: str) -> Mapping[str, Any]:
    """Return the cluster or the user that a context names, empty without one.

    Of several files the first with an entry of that name counts, as for kubectl.
    """
    # Reversed, since later entries of a dict replace earlier ones and the first file must win.
    contexts = {name: entry for document in reversed(documents) for name, entry in _named(document, "contexts").items()}
    entries = {name: entry for document in reversed(documents) for name, entry in _named(document, f"{kind}s").items()}
    chosen_context = contexts[context].get("context") or {}
    entry = entries.get(str(chosen_context.get(kind)), {}).get(kind)
    return entry if isinstance(entry, dict) else {}


def _checked(configuration: "Configuration", origin: str, proxy_url: str = "") -> "Configuration":
    """Return the configuration with a checked address, our proxy rule and keep-alive."""
    address = usable_address(configuration.host)
    if address is None:
        raise InputError("server", configuration.host, f"an http or https address (in {origin})")
    configuration.proxy = find_proxy(address, proxy_url)
    configuration.no_proxy = None  # what the environment excludes is left out already
    configuration.proxy_headers = proxy_headers(configuration.proxy) if configuration.proxy else None
    configuration.socket_options = KEEP_ALIVE
    return configuration


_SILENT_PEER_SECONDS: Final = 30
"""A connection is given up after so long without an answer from the peer's kernel."""


def _keep_alive_options() -> list[tuple[int, int, int]]:
    """Return socket options that detect a dead peer, even if it has forgotten the connection."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    probes = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
    # Otherwise Linux resends what is not acknowledged for some 15 minutes, and keep-alive does not probe meanwhile
    # (openshift/library-go#926, kubernetes/kubernetes#48670).
    for name, value in {**probes, "TCP_USER_TIMEOUT": 1000 * _SILENT_PEER_SECONDS}.items():
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


KEEP_ALIVE: Final = _keep_alive_options()
"""Socket options of each connection to the API server: level, name, value."""
