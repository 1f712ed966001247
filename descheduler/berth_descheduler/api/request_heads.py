"""Refuses request heads that HTTP programs read differently, although the HTTP library takes them.

A proxy in front and this service have to agree on where a request ends. So no line may end without a carriage return,
no header may go on in the next line, and no length may be given twice.
"""

import re
from typing import Final

_END: Final = b"\r\n\r\n"
# RFC 9112 lets recipients accept a bare LF (section 2.2) and folded lines (5.2), so two of them may differ.
_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")
_BARE_RETURN: Final = re.compile(rb"\r(?!\n|\Z)")
_CONTINUED_LINE: Final = re.compile(rb"\r\n[ \t]")
_LENGTH: Final = re.compile(rb"\r\ncontent-length[ \t]*:([^\r\n]*)", re.IGNORECASE)


def fault_in_head(received: bytes) -> str:
    """Return what is wrong with the head of a request, as far as it has been received; "" for nothing."""
    head = received.partition(_END)[0]
    lengths = _LENGTH.findall(head)
    if _BARE_LINE_FEED.search(head):
        return "a line of the head ends without a carriage return"
    if _BARE_RETURN.search(head):
        return "the head has a carriage return within a line"
    if _CONTINUED_LINE.search(head):
        return "a header goes on in the next line"
    if len(lengths) > 1 or any(b"," in length for length in lengths):
        return "there are two values of Content-Length"
    return ""
