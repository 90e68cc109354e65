"""Whose certificates are trusted: read once, for all connections of the daemon."""

from __future__ import annotations

import ssl
from typing import Final

import httpx2
import trio

__all__ = ["trusted"]

_TRUSTED: Final[trio.lowlevel.RunVar[ssl.SSLContext]] = trio.lowlevel.RunVar("conduit.trusted_certificates")


async def trusted() -> ssl.SSLContext:
    """The context of connections to servers, which verifies their certificates and names.

    It is made once: to read some hundred certificates takes tens of milliseconds, and so does forgetting them.
    """
    try:
        return _TRUSTED.get()
    except LookupError:
        context: ssl.SSLContext = await trio.to_thread.run_sync(httpx2.create_ssl_context)
        _TRUSTED.set(context)
        return context
