"""A person's login to a server: a browser is sent to the authorization server, and comes back to a port of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, final
from urllib.parse import parse_qs, urlsplit

import h11
import httpx2
import trio
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

from conduit_daemon.clients.auth import Login, LoopbackPerson, TokenFile, token_file
from conduit_daemon.clients.http_bounds import ENCODING, bound_answer
from conduit_daemon.clients.http_errors import root_cause
from conduit_daemon.config.model import ServerConfig
from conduit_daemon.errors import DaemonError

__all__ = ["log_in"]

_PATH: Final = "/callback"
_PATIENCE: Final = 300.0
_KNOCK: Final = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
_HEADERS: Final = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": ENCODING,
    "content-type": "application/json",
}
_DONE: Final = "<!doctype html><title>Conduit</title><p>You are logged in. This window can be closed."
_FAILED: Final = "<!doctype html><title>Conduit</title><p>The login failed. Look at the terminal."


async def log_in(server: str, config: ServerConfig, state: Path, show: Callable[[str], None]) -> bool:
    """Logs in to a server and keeps the tokens in the state directory.

    Args:
        server: The server's id.
        config: Its configuration.
        state: The state directory.
        show: Called with the address that the person is to open; opening a browser at it is the caller's.

    Returns:
        Whether there are new tokens; False where the server wants no login.

    Raises:
        DaemonError: The server has no ``auth`` of type ``oauth``, or the login failed; the message says why.
    """
    if config.auth is None or config.auth.type != "oauth" or config.url is None:
        raise DaemonError(f'Server {server} has no login: give it auth = {{ type = "oauth" }} in its configuration.')
    file = TokenFile(token_file(state, server), config.url, config.auth)
    browser, failed = _Browser(show), ""
    with trio.move_on_after(_PATIENCE) as patience:
        try:
            async with trio.open_nursery() as nursery:
                await browser.listen(nursery)
                person = LoopbackPerson(browser.redirect_uri, browser.send, browser.wait)
                await _knock(config, Login(server, config.url, config.auth, file, person))
                nursery.cancel_scope.cancel()
        except* (OAuthFlowError, httpx2.HTTPError, OSError, ValueError) as group:
            failed = root_cause(group)
    if patience.cancelled_caught:
        raise DaemonError(f"Nobody logged in to server {server} within {_PATIENCE:g} s.")
    if failed:
        raise DaemonError(f"The login to server {server} failed: {failed}.")
    return browser.sent


async def _knock(config: ServerConfig, login: Login) -> None:
    assert config.url is not None  # noqa: S101 - the caller looked
    headers = {**_HEADERS, **config.headers}
    async with (
        httpx2.AsyncClient(
            headers=headers, auth=login, timeout=config.connect_timeout, event_hooks={"response": [bound_answer]}
        ) as client,
        client.stream("POST", config.url, content=_KNOCK),
    ):
        return  # whatever it answers: the tokens are had


@final
class _Browser:
    """Listens on a loopback port for the browser to come back."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.redirect_uri = ""
        self.sent = False
        self._show = show
        self._back = trio.Event()
        self._result: AuthorizationCodeResult | None = None
        self._error = ""
        self._state: list[str] | None = None

    async def listen(self, nursery: trio.Nursery) -> None:
        listeners = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        self.redirect_uri = f"http://127.0.0.1:{port}{_PATH}"

    async def send(self, url: str) -> None:
        self.sent = True
        self._state = parse_qs(urlsplit(url).query).get("state")
        self._show(url)

    async def wait(self) -> AuthorizationCodeResult:
        await self._back.wait()
        if self._result is None:
            raise OAuthFlowError(self._error)
        return self._result

    async def _serve(self, stream: trio.SocketStream) -> None:
        wire = h11.Connection(h11.SERVER)
        with trio.move_on_after(10):
            try:
                target = await _request_target(wire, stream)
                status, page = self._take(target)
                body = page.encode()
                headers = [("content-type", "text/html; charset=utf-8"), ("content-length", str(len(body)))]
                answer = wire.send(h11.Response(status_code=status, headers=[*headers, ("connection", "close")]))
                await stream.send_all((answer or b"") + (wire.send(h11.Data(data=body)) or b""))
            except (h11.RemoteProtocolError, trio.BrokenResourceError, trio.ClosedResourceError):
                return
            finally:
                await stream.aclose()

    def _take(self, target: str) -> tuple[int, str]:
        parts = urlsplit(target)
        found = parse_qs(parts.query)
        if parts.path != _PATH or self._back.is_set() or found.get("state") != self._state:
            return 404, _FAILED  # whoever that was, it is not the browser that was sent away
        query = {key: values[0] for key, values in found.items()}
        if "code" in query:
            self._result = AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))
        else:
            self._error = query.get("error_description") or query.get("error") or "it gave no code"
        self._back.set()
        return (200, _DONE) if self._result is not None else (400, _FAILED)


async def _request_target(wire: h11.Connection, stream: trio.SocketStream) -> str:
    while True:
        event = wire.next_event()
        if event is h11.NEED_DATA:
            wire.receive_data(await stream.receive_some(4096))
        elif isinstance(event, h11.Request):
            return event.target.decode(errors="replace")
        else:
            raise h11.RemoteProtocolError("no request came")
