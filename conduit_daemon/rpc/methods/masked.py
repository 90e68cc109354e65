"""What administrators are shown, without secrets: the one place through which all of their methods' results go."""

from __future__ import annotations

import msgspec

from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.protocol import Request
from conduit_daemon.telemetry.masking import Masker

__all__ = ["masked"]


def masked(handler: Handler, masker: Masker) -> Handler:
    """A method's handler, whose result has no secret in it.

    Args:
        handler: The method's own.
        masker: What is secret.
    """

    async def handle(connection: Connection, request: Request) -> object:
        result = msgspec.Raw(msgspec.json.encode(await handler(connection, request)))
        if not masker.occurs_in(bytes(result)):
            return result
        # Not in the text: a number that happens to be a secret would leave no valid JSON there.
        return masker.mask_value(msgspec.json.decode(result))

    return handle
