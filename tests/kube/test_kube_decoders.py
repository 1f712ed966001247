"""Threads decode only types of which msgspec knows all: one that it knows in part ends the process."""

import threading

import msgspec

from berth_kube import decoding
from berth_kube.decoding import build_decoders, decode
from berth_kube.errors import Call

ASKED: list[str] = []
GOING_ON = threading.Event()


def told(name: str) -> type[int]:
    """Return the type of a field, and note that msgspec has asked for it."""
    ASKED.append(name)
    if name == "slow":
        assert GOING_ON.wait(60)
    return int


def test_what_is_defined_before_a_program_has_threads_is_not_asked_for_again() -> None:
    early = msgspec.defstruct("Early", [("number", "told('early')", 0)], module=__name__)
    build_decoders()
    assert ASKED.count("early") == 1
    assert msgspec.json.decode(b'{"number": 7}', type=early).number == 7
    assert ASKED.count("early") == 1


def test_no_thread_decodes_a_type_that_another_is_building() -> None:
    slow = msgspec.defstruct("Slow", [("number", "told('slow')", 0)], module=__name__)
    outer = msgspec.defstruct("Outer", [("slow", slow | None, None), ("count", int, 0)])
    around = msgspec.defstruct("Around", [("outer", outer | None, None)])
    call = Call("get", "anything")
    first = threading.Thread(target=lambda: decode(call, b"{}", outer))
    second = threading.Thread(target=lambda: decoding._decoder(around))  # decoding would end this process
    first.start()
    while "slow" not in ASKED:
        first.join(0.01)
        assert first.is_alive()
    second.start()
    second.join(0.5)
    assert second.is_alive(), "it waits for the first"
    GOING_ON.set()
    first.join(60)
    second.join(60)
    assert repr(decode(call, b'{"outer": {"count": 8}}', around)) == "Around(outer=Outer(slow=None, count=8))"
