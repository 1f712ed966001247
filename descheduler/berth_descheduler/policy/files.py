"""Reads policies and other YAML documents from files."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from berth_core import DeschedulerPolicy, InputError
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy.decoding import decode_policy
from berth_descheduler.policy.upstream import is_upstream, not_installed, read_upstream
from berth_kube import LocatedDocument, locate_documents, read_bounded

STANDARD_INPUT: Final = "-"


def read_policy_file(name: str) -> DeschedulerPolicy:
    """Return the policy in a file, or on standard input for `-`.

    A file of the upstream descheduler may have one profile, which is converted. Raises `InputError` that names file or
    field.
    """
    raw_policy = read_document(name)
    if not isinstance(raw_policy, Mapping) or not is_upstream(raw_policy):
        return decode_policy(raw_policy)
    plugins = installed_plugins().names
    profiles = read_upstream(raw_policy, plugins)
    if len(profiles) != 1:
        raise InputError("profiles", None, "one profile: a file for each", said=f"a list of {len(profiles)} profiles")
    if profiles[0].missing:
        raise not_installed("profiles[0]", profiles[0].missing, plugins)
    return decode_policy(profiles[0].raw)


def read_document(name: str) -> object:
    """Return the one document of a file in builtins; raises `InputError` that names the file."""
    documents = read_documents(name, "--policy")
    if len(documents) != 1:
        raise InputError("--policy", name, "a file with one policy", said=f"a file with {len(documents)} documents")
    return documents[0].content


def read_documents(name: str, field: str) -> tuple[LocatedDocument, ...]:
    """Return the documents of a file that are not empty; raises `InputError` for `field`, which names the file."""
    try:
        text = read_bounded(sys.stdin.buffer if name == STANDARD_INPUT else Path(name))
        return tuple(document for document in locate_documents(text) if document.content is not None)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(field, name, f"a file that can be read: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(field, name, f"a file in YAML: {' '.join(str(error).split())}") from error
