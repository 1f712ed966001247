"""YAML of users, read within bounds.

Memory stays proportional to the file's length. Aliases let a few lines stand for millions of values ("billion laughs"),
or for a value within itself; both are detected on the nodes, before objects are built from them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import yaml

from berth_core import field_steps
from berth_core.depths import MAX_DEPTH

LARGEST_BYTES: Final = 4 * 1024 * 1024
"""Of a file; the API server takes objects of some 1.5 MiB."""
MOST_VALUES: Final = 200_000
"""Of a document, including the values of aliases."""


class UnreadableYamlError(yaml.YAMLError):
    """A text is YAML, but exceeds the bounds."""


_Loader: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML is built with it: half a megabyte takes 0.7 s instead of 7."""


@dataclass(frozen=True, slots=True)
class LocatedDocument:
    """A document in builtins, and the positions of its fields in the text."""

    content: object
    root: yaml.Node

    def line_of(self, path: str) -> int | None:
        """Return the line, from 1, of the deepest part of a path such as `spec.profiles[0].name` that exists.

        None if no part exists. A path may name a member of a list, as in `pluginConfig.DefaultEvictor`.
        """
        node, line = self.root, None
        for step in field_steps(path):
            located = _step_into(node, step)
            if located is None:
                break
            mark, node = located
            line = mark.line + 1
        return line


def _step_into(node: yaml.Node, step: str) -> tuple[yaml.Mark, yaml.Node] | None:
    """Return where a field or member of a list begins, and its value; None if it does not exist."""
    match node:
        case yaml.MappingNode():
            pairs = ((key.start_mark, value) for key, value in node.value if getattr(key, "value", None) == step)
            return next(pairs, None)
        case yaml.SequenceNode() if step.isdigit():
            return next(((item.start_mark, item) for item in node.value[int(step) :]), None)
        case yaml.SequenceNode():
            members = ((item.start_mark, item) for item in node.value if _name_of(item) == step)
            return next(members, None)
        case _:
            return None


def _name_of(node: yaml.Node) -> object:
    name_node = _step_into(node, "name") if isinstance(node, yaml.MappingNode) else None
    return getattr(name_node[1], "value", None) if name_node is not None else None


def load_documents(text: str) -> tuple[object, ...]:
    """Return the documents of a text in builtins; raises `yaml.YAMLError`."""
    return tuple(document.content for document in locate_documents(text))


def locate_documents(text: str) -> tuple[LocatedDocument, ...]:
    """Return the documents of a text; raises `yaml.YAMLError`."""
    documents: list[LocatedDocument] = []
    loader: yaml.SafeLoader | None = None
    try:
        _check_depth(text)
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                _check(node)
                documents.append(LocatedDocument(loader.construct_document(node), node))
    except (ValueError, OverflowError) as error:
        raise UnreadableYamlError(f"a value cannot be read ({error})") from error
    finally:
        if loader is not None:
            loader.dispose()
    return tuple(documents)


def _check_depth(text: str) -> None:
    """Raise at the first value that is nested too deeply.

    Before nodes are composed, because the composer recurses.
    """
    levels = 0
    for event in yaml.parse(text, Loader=_Loader):
        match event:
            case yaml.CollectionStartEvent():
                levels += 1
            case yaml.CollectionEndEvent():
                levels -= 1
        if levels > MAX_DEPTH:
            raise UnreadableYamlError(f"it is nested more than {MAX_DEPTH} levels deep")


def read_bounded(source: Path | IO[bytes]) -> str:
    """Return a file's text; raises `OSError`, `UnicodeDecodeError` or `yaml.YAMLError`."""
    if isinstance(source, Path):
        with source.open("rb") as opened:
            return read_bounded(opened)
    raw = source.read(LARGEST_BYTES + 1)
    if len(raw) > LARGEST_BYTES:
        raise UnreadableYamlError(f"it is longer than {LARGEST_BYTES} bytes")
    return raw.decode("utf-8")


def _check(root: yaml.Node) -> None:
    """Raise if a document is too deep, cyclic or has too many values.

    A depth-first walk on a stack of its own, in which a node that is still open is its own ancestor.
    """
    measured: dict[int, tuple[int, int]] = {}  # node to values and levels
    open_nodes: set[int] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        unmeasured = [part for part in _inside(node) if id(part) not in measured]
        if not unmeasured or id(node) in measured:
            parts = [measured[id(part)] for part in _inside(node)]
            values, levels = 1 + sum(part[0] for part in parts), 1 + max((part[1] for part in parts), default=0)
            if values > MOST_VALUES:
                raise UnreadableYamlError(f"its aliases stand for more than {MOST_VALUES} values")
            if levels > MAX_DEPTH:
                raise UnreadableYamlError(f"it is nested more than {MAX_DEPTH} levels deep")
            measured[id(node)] = values, levels
            open_nodes.discard(id(node))
            stack.pop()
            continue
        open_nodes.add(id(node))
        if any(id(part) in open_nodes for part in unmeasured):
            raise UnreadableYamlError("an alias stands for a value that it is part of")
        stack += unmeasured


def _inside(node: yaml.Node) -> Iterable[yaml.Node]:
    match node:
        case yaml.MappingNode():
            return [part for pair in node.value for part in pair]
        case yaml.SequenceNode():
            return list(node.value)
        case _:
            return ()
