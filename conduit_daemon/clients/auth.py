"""Logging in to a remote server by OAuth: the SDK's provider, with tokens that are kept, shared and renewed in time.

The SDK's own flow holds a lock while a request waits for its answer, forgets across restarts when a token expires
and where it is renewed, and sends whoever is there to a browser. Here requests with a good token pass at once,
what a renewal needs is kept in a file, and only `conduit login` talks to people.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar, final

import httpx2
import msgspec
import trio
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import extract_field_from_www_auth, is_valid_client_metadata_url
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from conduit_daemon.clients.http_bounds import bound_answer
from conduit_daemon.clients.tls import trusted
from conduit_daemon.config.model import AuthConfig

__all__ = ["Login", "LoginNeeded", "LoopbackPerson", "TokenFile", "token_file"]

_M = TypeVar("_M", bound=BaseModel)

_MARGIN: Final = 60.0
_LOOK: Final = 15.0
_RENEWAL: Final = 30.0
_PLACEHOLDER: Final = "http://127.0.0.1/callback"
_ANSWERS: Final = (HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED)
_STEP_UP: Final = "insufficient_scope"
_SECRETS: Final = ("access_token", "refresh_token", "id_token", "client_secret")


class LoginNeeded(Exception):
    """A person has to log in first."""


class _Kept(msgspec.Struct, omit_defaults=True):
    """What the file holds; the SDK's models in their own JSON form."""

    url: str
    client_id: str | None = None
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None
    client: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None


def token_file(state: Path, server: str) -> Path:
    """Where the tokens of a server are kept."""
    return state / "auth" / f"{server}.json"


@final
class TokenFile:
    """Keeps what one server's login came to, readable by the daemon's user alone; a `TokenStorage` of the SDK's.

    Args:
        path: The file.
        url: The server's URL: what was kept for another one does not count.
        config: Its ``auth`` table; the same holds for another ``client_id``.
        conceal: Told all secrets of the login whenever they are others, so that they can be masked.
    """

    def __init__(
        self, path: Path, url: str, config: AuthConfig, conceal: Callable[[frozenset[str]], None] | None = None
    ) -> None:
        self._path = path
        self._conceal = conceal
        self._kept = _Kept(url, config.client_id)
        self._owner: Login | None = None
        self._read_at = 0

    def belong_to(self, login: Login) -> None:
        """Has further facts kept with the tokens, out of the login's context."""
        self._owner = login

    def load(self) -> bool:
        """Reads the file if it was changed; tells whether it was."""
        try:
            changed_at = self._path.stat().st_mtime_ns
            if changed_at == self._read_at:
                return False
            kept = msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return False
        self._read_at = changed_at
        if (kept.url, kept.client_id) != (self._kept.url, self._kept.client_id):
            return False
        self._kept = kept
        self._tell_secrets()
        return True

    @property
    def expires_at(self) -> float | None:
        """When the token ends, in unix seconds."""
        return self._kept.expires_at

    def metadata(self) -> OAuthMetadata | None:
        """What is known of the authorization server."""
        return _model(OAuthMetadata, self._kept.metadata)

    def resource(self) -> ProtectedResourceMetadata | None:
        """What the server says of itself."""
        return _model(ProtectedResourceMetadata, self._kept.resource)

    async def get_tokens(self) -> OAuthToken | None:
        """The kept tokens."""
        return _model(OAuthToken, self._kept.tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keeps tokens, and what renewing them needs."""
        self._kept.tokens = _dumped(tokens)
        self._tell_secrets()
        if self._owner is not None:
            context = self._owner.context
            self._kept.expires_at = context.token_expiry_time
            self._kept.metadata = _dumped(context.oauth_metadata)
            self._kept.resource = _dumped(context.protected_resource_metadata)
        self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The kept registration."""
        return _model(OAuthClientInformationFull, self._kept.client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keeps a registration."""
        self._kept.client = _dumped(client_info)
        self._tell_secrets()
        self._write()

    def _tell_secrets(self) -> None:
        if self._conceal is not None:
            known = {**(self._kept.tokens or {}), **(self._kept.client or {})}
            self._conceal(frozenset(value for name in _SECRETS if isinstance(value := known.get(name), str)))

    def _write(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._path.with_suffix(f".{os.getpid()}.new")
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(self._kept)))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._read_at = self._path.stat().st_mtime_ns


class LoopbackPerson(msgspec.Struct, frozen=True):
    """A person who can be sent to a browser.

    Attributes:
        redirect_uri: Where the browser is sent back to.
        send: Sends the person to a URL.
        wait: Waits for what the browser brings back.
    """

    redirect_uri: str
    send: Callable[[str], Awaitable[None]]
    wait: Callable[[], Awaitable[AuthorizationCodeResult]]


@final
class Login(OAuthClientProvider):
    """Signs the requests to one server.

    Args:
        server: The server's id, for messages.
        url: Its URL.
        config: Its ``auth`` table.
        file: Where tokens are kept.
        person: Who can log in; None where nobody is there.
    """

    def __init__(
        self, server: str, url: str, config: AuthConfig, file: TokenFile, person: LoopbackPerson | None = None
    ) -> None:
        self._server = server
        self._config = config
        self._file = file
        self._person = person
        self._machine = config.type == "client_credentials"
        document = config.client_id if config.client_id and is_valid_client_metadata_url(config.client_id) else None
        redirect = person.redirect_uri if person is not None else _PLACEHOLDER
        super().__init__(
            url,
            OAuthClientMetadata(
                client_name="Conduit",
                redirect_uris=None if self._machine else [AnyUrl(redirect)],
                grant_types=["client_credentials"] if self._machine else ["authorization_code", "refresh_token"],
                scope=" ".join(config.scopes) or None,
            ),
            file,
            redirect_handler=None if person is None else person.send,
            callback_handler=None if person is None else person.wait,
            client_metadata_url=document,
        )
        self._fixed = None if document is not None else self._registered()
        file.belong_to(self)

    async def keep_fresh(self) -> None:
        """Renews the token before it ends, until cancelled."""
        while True:
            await trio.sleep(_LOOK)
            if self._initialized and self._ends_within(_MARGIN):
                await self._renew(self._token())

    # ---- the SDK's hooks

    async def _initialize(self) -> None:
        self._file.load()
        context = self.context
        await super()._initialize()
        context.token_expiry_time = self._file.expires_at
        context.oauth_metadata = context.oauth_metadata or self._file.metadata()
        context.protected_resource_metadata = context.protected_resource_metadata or self._file.resource()
        self._bind()
        context.client_info = self._fixed or self._reusable(context.client_info)

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        self._bind()

    def _bind(self) -> None:
        """Binds a configured secret to the first authorization server that took it: it is shown to no other."""
        metadata = self.context.oauth_metadata
        if self._fixed is not None and self._config.token_url is None and metadata is not None:
            self._fixed.issuer = str(metadata.issuer)

    def _get_token_endpoint(self) -> str:
        return self._config.token_url or super()._get_token_endpoint()

    async def _perform_authorization(self) -> httpx2.Request:
        if not self._machine:
            return await super()._perform_authorization()
        data = {"grant_type": "client_credentials"}
        headers = {"content-type": "application/x-www-form-urlencoded"}
        self._choose_authentication()
        data, headers = self.context.prepare_token_auth(data, headers)
        if self.context.should_include_resource_param(self.context.protocol_version):
            data["resource"] = self.context.get_resource_url()
        if self.context.client_metadata.scope:
            data["scope"] = self.context.client_metadata.scope
        return httpx2.Request("POST", self._get_token_endpoint(), data=data, headers=headers)

    async def _exchange_token_authorization_code(self, auth_code: str, code_verifier: str) -> httpx2.Request:
        self._choose_authentication()
        return await super()._exchange_token_authorization_code(auth_code, code_verifier)

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if not self._initialized:
            async with self.context.lock:
                if not self._initialized:
                    await self._initialize()
        if self._ends_within(0):
            await self._renew(self._token())
        for _ in range(2):
            token = self._token()
            if token is not None:
                self._add_auth_header(request)
            response = yield request
            if not self._challenges(response):
                return
            if self._token() == token and self._file.load():
                await self._initialize()  # somebody has logged in meanwhile
            if self._token() == token and token is not None and response.status_code == HTTPStatus.UNAUTHORIZED:
                await self._renew(token)
            if self._token() in (None, token):
                break
        if self._person is None and not self._machine:
            if response.status_code == HTTPStatus.UNAUTHORIZED:
                raise LoginNeeded(f"somebody has to log in to it: run `conduit login {self._server}`")
            return  # more scope is wanted for this one request, and nobody is there to grant it
        flow = super()._auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                outgoing = await flow.asend((yield outgoing))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    # ---- tokens

    def _token(self) -> str | None:
        tokens = self.context.current_tokens
        return None if tokens is None else tokens.access_token

    def _ends_within(self, seconds: float) -> bool:
        ends = self.context.token_expiry_time
        return self.context.current_tokens is not None and ends is not None and time.time() >= ends - seconds

    async def _renew(self, token: str | None) -> None:
        """Renews `token`, unless that is done already; once, whoever asks, and not given up half way."""
        with trio.move_on_after(_RENEWAL, shield=True):
            async with self.context.lock:
                if self._token() != token or not self._renewable():
                    return
                request = await (self._perform_authorization() if self._machine else self._refresh_token())
                try:
                    hooks = {"response": [bound_answer]}
                    async with httpx2.AsyncClient(verify=await trusted(), event_hooks=hooks) as client:
                        response = await client.send(request)
                except httpx2.HTTPError:
                    return  # tried again, and the old token may do
                if response.status_code in _ANSWERS:  # others say nothing about the token
                    await self._handle_refresh_response(response)

    def _renewable(self) -> bool:
        if self._machine:
            return self._config.token_url is not None or self.context.oauth_metadata is not None
        return self.context.can_refresh_token()

    def _challenges(self, response: httpx2.Response) -> bool:
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            return True
        return (
            response.status_code == HTTPStatus.FORBIDDEN and extract_field_from_www_auth(response, "error") == _STEP_UP
        )

    # ---- the client

    def _registered(self) -> OAuthClientInformationFull | None:
        if self._config.client_id is None:
            return None
        return OAuthClientInformationFull(
            redirect_uris=self.context.client_metadata.redirect_uris,
            client_id=self._config.client_id,
            client_secret=self._config.client_secret,
            token_endpoint_auth_method="client_secret_basic" if self._config.client_secret else "none",
        )

    def _reusable(self, client: OAuthClientInformationFull | None) -> OAuthClientInformationFull | None:
        """A kept registration, unless the person would come back to where it does not allow."""
        if client is None or self._person is None or client.client_id == self.context.client_metadata_url:
            return client
        allowed = [str(uri) for uri in client.redirect_uris or ()]
        return client if self._person.redirect_uri in allowed else None

    def _choose_authentication(self) -> None:
        """Proves a configured secret in the way that the authorization server takes; basic where it does not say."""
        client, metadata = self._fixed, self.context.oauth_metadata
        if client is None or client.client_secret is None or metadata is None:
            return
        taken = metadata.token_endpoint_auth_methods_supported
        if taken and "client_secret_basic" not in taken and "client_secret_post" in taken:
            client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105 - a method


def _dumped(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _model(kind: type[_M], value: dict[str, Any] | None) -> _M | None:
    try:
        return None if value is None else kind.model_validate(value)
    except ValidationError:
        return None  # a file that was damaged is no login
