"""Owns how a policy comes out of a file: one YAML or JSON document, from a path or standard input.

It does not own what the document says (`decoding`).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from berth_core.errors import InputError
from berth_core.policies import DeschedulerPolicy
from berth_descheduler.plugins.builtin import installed_plugins
from berth_descheduler.policies.decoding import decode_policy
from berth_descheduler.policies.upstream import is_upstream, not_installed, read_upstream
from berth_kube.yaml_documents import load_documents, read_bounded

STANDARD_INPUT: Final = "-"


def read_policy_file(name: str) -> DeschedulerPolicy:
    """Return the policy in a file, or on standard input for `-`; raises `InputError` that names file or field.

    Of a file of the upstream descheduler it is its one profile.
    """
    raw = read_document(name)
    if not isinstance(raw, Mapping) or not is_upstream(raw):
        return decode_policy(raw)
    plugins = installed_plugins().names
    profiles = read_upstream(raw, plugins)
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
    return documents[0]


def read_documents(name: str, field: str) -> tuple[object, ...]:
    """Return the documents of a file in builtins; raises `InputError` with the field for which the file was named."""
    try:
        text = read_bounded(sys.stdin.buffer if name == STANDARD_INPUT else Path(name))
        return tuple(one for one in load_documents(text) if one is not None)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(field, name, f"a file that can be read: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(field, name, f"a file in YAML: {' '.join(str(error).split())}") from error
