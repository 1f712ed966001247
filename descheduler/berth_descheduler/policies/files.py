"""Owns how a policy comes out of a file: one YAML or JSON document, from a path or standard input.

It does not own what the document says (`decoding`).
"""

import sys
from pathlib import Path
from typing import Final

import yaml

from berth_core.errors import InputError
from berth_core.policies import DeschedulerPolicy
from berth_descheduler.policies.decoding import decode_policy

STANDARD_INPUT: Final = "-"


def read_policy_file(name: str) -> DeschedulerPolicy:
    """Return the policy in a file, or on standard input for `-`; raises `InputError` that names file or field."""
    return decode_policy(read_document(name))


def read_document(name: str) -> object:
    """Return the one document of a file in builtins; raises `InputError` that names the file."""
    try:
        text = sys.stdin.read() if name == STANDARD_INPUT else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--policy", name, f"a file that can be read: {error}") from error
    try:
        documents = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        raise InputError("--policy", name, f"a file in YAML: {' '.join(str(error).split())}") from error
    if len(documents) != 1:
        raise InputError("--policy", name, "a file with one policy", said=f"a file with {len(documents)} documents")
    return documents[0]
