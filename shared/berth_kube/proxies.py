"""Which proxy leads to an API server: `proxy-url` of a kubeconfig, else the environment's.

The rules are client-go's, which kubectl and the components of Kubernetes use: `proxy-url` counts for every address and
is not subject to NO_PROXY; HTTPS_PROXY or HTTP_PROXY counts by the scheme of the server, never for loopback addresses,
and not for what NO_PROXY names. ALL_PROXY does not count.
"""

import os
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, unquote, urlsplit

from urllib3 import make_headers

from berth_core import InputError

PORTS: Mapping[str, int] = {"http": 80, "https": 443}


def find_proxy(server: SplitResult, proxy_url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the address of the proxy to a server, None for a direct connection.

    `proxy_url` is that of the kubeconfig, "" without one. Raises `InputError` for an address that no proxy can have.
    """
    if proxy_url:
        return checked_proxy("proxy-url", proxy_url)
    name = f"{server.scheme}_proxy"
    address = environment.get(name) or environment.get(name.upper()) or ""
    excluded = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    host, port = server.hostname or "", server.port or PORTS.get(server.scheme, 0)
    # As Go's `http.ProxyFromEnvironment`, which makes this exception for `localhost` and loopback addresses.
    if not address or is_loopback(host) or is_excluded(host, port, excluded):
        return None
    return checked_proxy(name.upper(), address if "://" in address else f"http://{address}")


def checked_proxy(origin: str, address: str) -> str:
    """Return a proxy's address; raises `InputError`, which leaves out the password, if it is unusable."""
    if usable_address(address) is None:
        raise InputError(origin, address.rpartition("@")[2], "the http or https address of a proxy")
    return address


def usable_address(url: str) -> SplitResult | None:
    """Return the parts of a server's address, None if it is unusable."""
    try:
        address = urlsplit(url)
        is_usable = address.scheme in PORTS and bool(address.hostname) and address.port != 0
    except ValueError:
        return None
    return address if is_usable else None


def proxy_headers(proxy: str) -> dict[str, str]:
    """Return the headers that authenticate with a proxy, by the user and password in its address."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return make_headers(proxy_basic_auth=user)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address means this machine."""
    address = _address(host)
    if address is None:
        name = host.rstrip(".").lower()
        return name == "localhost" or name.endswith(".localhost")
    return address.is_loopback


def is_excluded(host: str, port: int, excluded: str) -> bool:
    """Return whether NO_PROXY names a host.

    Its entries are `*`, addresses, CIDR ranges, and domains with all their subdomains, each with or without a port.
    """
    entries = [entry.strip().lower() for entry in excluded.split(",")]
    return any(_names(entry, host.rstrip(".").lower(), port) for entry in entries if entry)


def _names(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    pattern, wanted_port = _split_port(entry)
    if wanted_port and wanted_port != port:
        return False
    if address is not None:
        return _holds(pattern, address)
    pattern = pattern.removeprefix("*")
    return host.endswith(pattern) if pattern.startswith(".") else host == pattern or host.endswith(f".{pattern}")


def _split_port(entry: str) -> tuple[str, int]:
    """Return an entry of NO_PROXY without its port, 0 for none."""
    if entry.startswith("["):
        address, _, rest = entry[1:].partition("]")
        return address, int(rest[1:]) if rest[1:].isdecimal() else 0
    pattern, colon, port = entry.rpartition(":")
    is_port = bool(colon) and ":" not in pattern and port.isdecimal()
    return (pattern, int(port)) if is_port else (entry, 0)


def _holds(pattern: str, address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address equals a pattern or is in its range."""
    try:
        return address in ip_network(pattern, strict=False)
    except ValueError:
        return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return a host as an address, None if it is a name; an IPv4-mapped IPv6 address is an IPv4 address."""
    try:
        address = ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
