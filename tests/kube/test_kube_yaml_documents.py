"""YAML that people hand in takes no more memory than its length lets expect, whatever its aliases stand for."""

import io
import tracemalloc
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from berth_kube import yaml_documents
from berth_kube.yaml_documents import LARGEST_BYTES, load_documents, locate_documents, read_bounded
from properties import holds_for

LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGES = "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
BAD = {
    "aliases that stand for a billion values": (LAUGHS, "its aliases stand for more than 200000 values"),
    "merges that stand for a billion values": (MERGES, "its aliases stand for more than 200000 values"),
    "a list within itself": ("a: &a [*a]", "an alias stands for a value that it is part of"),
    "a map within itself, further down": ("a: &a {b: [{c: *a}]}", "an alias stands for a value that it is part of"),
    "a map that is its own key": ("? &a {? *a : b}\n: c", "an alias stands for a value that it is part of"),
    "brackets without end": ("[" * 100_000, "it is nested more than 100 levels deep"),
    "brackets": ("[" * 5_000 + "]" * 5_000, "it is nested more than 100 levels deep"),
    "a few too many levels": ("[" * 101 + "]" * 101, "it is nested more than 100 levels deep"),
    "a number of ten thousand digits": ("a: " + "9" * 10_000, "a value cannot be read"),
    "a day that is none": ("a: 2001-99-99", "a value cannot be read"),
    "an escape sequence": ("a: \x1b[2J", "characters are not allowed"),
}


@pytest.mark.parametrize(("text", "want"), BAD.values(), ids=BAD)
def test_what_is_out_of_bounds_is_an_error_and_takes_no_memory(text: str, want: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(yaml.YAMLError) as caught:
            load_documents(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert want in str(caught.value)
    assert peak < 64 << 20


def test_aliases_within_bounds_are_taken() -> None:
    text = "base: &b {cpu: 1}\nboth: [*b, *b]\nmore:\n  <<: *b\n  memory: 2\n---\nsecond\n---\n"
    first = {"base": {"cpu": 1}, "both": [{"cpu": 1}, {"cpu": 1}], "more": {"cpu": 1, "memory": 2}}
    assert load_documents(text) == (first, "second", None)


@holds_for(
    st.recursive(
        st.text() | st.integers() | st.booleans() | st.none(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    ),
    quick=10,
    deep=30,
)
def test_what_is_written_is_read_as_by_the_library(value: object) -> None:
    assert load_documents(yaml.safe_dump(value)) == (value,)


def test_a_file_that_is_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    with large.open("wb") as opened:
        opened.truncate(LARGEST_BYTES + 1)
    for source in (large, io.BytesIO(b" " * (LARGEST_BYTES + 1)), Path("/dev/zero")):
        with pytest.raises(yaml.YAMLError, match=f"it is longer than {LARGEST_BYTES} bytes"):
            read_bounded(source)


def test_a_field_is_found_as_far_as_it_is_there() -> None:
    _, found = locate_documents("a: 1\n---\nb:\n  - name: x\n    c: {d: 1}\n  - name: y\n    e: 2\n")
    lines = {"b": 3, "b[0]": 4, "b[0].c.d": 5, "b[1].e": 7, "b.y.e": 7, "b[0].none": 4, "b[7]": 3, "a": None, "": None}
    assert {path: found.line_of(path) for path in lines} == lines


def test_libyaml_reads_where_pyyaml_has_it() -> None:
    """Python's own reader takes ten times as long, seven seconds for a file of half a megabyte."""
    assert yaml.__with_libyaml__
    assert yaml_documents._Loader is yaml.CSafeLoader
