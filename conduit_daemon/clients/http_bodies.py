"""Reading what an HTTP server answers: what kind it is, and its body piece by piece."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Final

import httpx2
import trio

from conduit_daemon.lines import TURN

__all__ = ["content_type", "is_stream", "pieces", "read_body", "shown"]

_LARGE: Final = 1 << 18
_SHOWN: Final = 200
_UNSHOWN: Final = re.compile(r"[^\x20-\x7e]")


def is_stream(response: httpx2.Response) -> bool:
    """Whether a response is a stream of events."""
    return content_type(response) == "text/event-stream"


def content_type(response: httpx2.Response) -> str:
    """The media type, in small letters and without parameters; empty where none is said."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def shown(header: str) -> str:
    """A server's header, fit to be part of a sentence."""
    return _UNSHOWN.sub("?", header[:_SHOWN])


async def pieces(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """A body piece by piece, with a turn for others: thousands may come out of one read, unpacked or in tiny chunks."""
    count = 0
    async for piece in response.aiter_bytes():
        yield piece
        count += 1
        if len(piece) > _LARGE or not count % TURN:
            await trio.lowlevel.checkpoint()


async def read_body(response: httpx2.Response, limit: int) -> bytes | None:
    """A whole body; None where it has more than `limit` bytes."""
    chunks, size = [], 0
    async for piece in pieces(response):
        size += len(piece)
        if size > limit:
            return None
        chunks.append(piece)
    return b"".join(chunks)
