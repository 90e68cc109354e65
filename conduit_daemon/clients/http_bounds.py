"""Bounds of what an HTTP server may answer where nobody reads with a limit of his own.

Answers to messages are read piece by piece against `limits.max_result`. All others (redirects, and what an
authorization server says, which the MCP server may choose) are read whole by the libraries beneath, so they are kept
small here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final, final

import httpx2

__all__ = ["ENCODING", "LARGE", "bound_answer"]

LARGE: Final = "conduit.large"
"""The extension of a request whose answer is read with a limit."""

ENCODING: Final = "gzip"
"""The one encoding of answers that is asked for."""

_SMALL: Final = 1 << 20
_SMALL_ENCODED: Final = 1 << 13  # which becomes a thousand times as much at most


async def bound_answer(response: httpx2.Response) -> None:
    """Bounds an answer before anybody reads it: a hook for the ``response`` event of an HTTP client.

    Raises:
        DecodingError: It is encoded in a way that was not asked for, such as twice.
    """
    encodings = [name.strip().lower() for name in response.headers.get_list("content-encoding", split_commas=True)]
    if encodings not in ([], [ENCODING], ["identity"]):
        name = ", ".join(encodings)[:100]
        raise httpx2.DecodingError(
            f"its answer is encoded as {name}, which was not asked for", request=response.request
        )
    redirect = HTTPStatus.MULTIPLE_CHOICES <= response.status_code < HTTPStatus.BAD_REQUEST
    if redirect or LARGE not in response.request.extensions:
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - of an asynchronous client
        response.stream = _Small(response.stream, _SMALL_ENCODED if ENCODING in encodings else _SMALL)


@final
class _Small(httpx2.AsyncByteStream):
    """A body that is not to be long."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise httpx2.RemoteProtocolError(
                    f"it answered with more than {self._limit} bytes, where few are needed"
                )
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
