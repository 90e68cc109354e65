"""Tokens: kept, renewed in time, shared by many requests at once, and never fought over."""

from __future__ import annotations

import json
import stat
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult, OAuthToken

from conduit_daemon.clients.auth import Login, LoginNeeded, LoopbackPerson, TokenFile, token_file
from conduit_daemon.clients.http_bounds import bound_answer
from conduit_daemon.config import AuthConfig

OAUTH = AuthConfig(type="oauth")


@pytest.fixture
def guarded(serve: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *behaviours: serve("oauth_server.py", "json", "no_stream", *behaviours)


def get(fake: Any, path: str) -> Any:
    with urllib.request.urlopen(fake.url(path), timeout=10) as answer:
        body = answer.read()
    return json.loads(body) if body else None


class Browser:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.sent = 0

    async def send(self, url: str) -> None:
        self.sent += 1
        async with httpx2.AsyncClient() as client:
            answer = await client.get(url)
        self.found = dict(httpx2.URL(answer.headers["location"]).params)

    async def wait(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=self.found["code"], state=self.found["state"])


def make(fake: Any, folder: Path, *, browser: Browser | None = None, config: AuthConfig = OAUTH) -> Login:
    url = fake.url()
    person = None if browser is None else LoopbackPerson("http://127.0.0.1:1/callback", browser.send, browser.wait)
    return Login("far", url, config, TokenFile(token_file(folder, "far"), url, config), person)


async def ask(fake: Any, login: Login, tool: str = "echo", **arguments: Any) -> int:
    params = {"name": tool, "arguments": {"text": "hi", **arguments}}
    async with httpx2.AsyncClient(auth=login, timeout=10) as client:
        answer = await client.post(
            fake.url(), json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        )
    return answer.status_code


async def test_nobody_there_means_no_registration_and_a_sentence(guarded: Any, tmp_path: Path) -> None:
    fake = guarded()
    with pytest.raises(LoginNeeded, match="run `conduit login far`"):
        await ask(fake, make(fake, tmp_path))
    assert get(fake, "/grants") == []
    assert list(tmp_path.iterdir()) == []


async def test_what_was_kept_is_used_by_the_next_and_renewed_after_its_end(guarded: Any, tmp_path: Path) -> None:
    fake, browser = guarded("expires_in=1"), Browser()
    assert await ask(fake, make(fake, tmp_path, browser=browser)) == 200
    assert stat.S_IMODE(token_file(tmp_path, "far").stat().st_mode) == 0o600
    login = make(fake, tmp_path)
    await trio.sleep(1.2)
    assert await ask(fake, login) == 200
    assert get(fake, "/grants") == ["register", "authorization_code", "refresh_token"]
    assert browser.sent == 1


async def test_many_requests_renew_an_ended_token_once(guarded: Any, tmp_path: Path) -> None:
    fake = guarded("expires_in=1")
    await ask(fake, make(fake, tmp_path, browser=Browser()))
    login = make(fake, tmp_path)
    await trio.sleep(1.2)
    statuses: list[int] = []

    async def one() -> None:
        statuses.append(await ask(fake, login))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(one)
    assert statuses == [200] * 10
    assert get(fake, "/grants").count("refresh_token") == 1


async def test_requests_do_not_wait_for_each_other(guarded: Any, tmp_path: Path) -> None:
    fake = guarded()
    login = make(fake, tmp_path, browser=Browser())
    await ask(fake, login)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: ask(fake, login, "sleep", seconds=5))
        await trio.sleep(0.2)
        began = time.monotonic()
        assert await ask(fake, login) == 200
        assert time.monotonic() - began < 2
        nursery.cancel_scope.cancel()


async def test_a_login_made_elsewhere_meanwhile_is_noticed(guarded: Any, tmp_path: Path) -> None:
    fake = guarded()
    waiting = make(fake, tmp_path)
    with pytest.raises(LoginNeeded):
        await ask(fake, waiting)
    await ask(fake, make(fake, tmp_path, browser=Browser()))
    assert await ask(fake, waiting) == 200


async def test_a_revoked_token_is_renewed_where_that_is_allowed(guarded: Any, tmp_path: Path) -> None:
    fake = guarded()
    await ask(fake, make(fake, tmp_path, browser=Browser()))
    login = make(fake, tmp_path)
    assert await ask(fake, login) == 200
    get(fake, "/revoke")
    assert await ask(fake, login) == 200
    get(fake, "/revoke?all=1")
    with pytest.raises(LoginNeeded):
        await ask(fake, login)


async def test_an_authorization_server_that_is_down_costs_no_token(guarded: Any, tmp_path: Path) -> None:
    fake = guarded("expires_in=1")
    await ask(fake, make(fake, tmp_path, browser=Browser()))
    kept = token_file(tmp_path, "far")
    value = json.loads(kept.read_text())
    value["metadata"]["token_endpoint"] = "http://127.0.0.1:9/token"
    kept.write_text(json.dumps(value))
    await trio.sleep(1.2)
    with pytest.raises(LoginNeeded):
        await ask(fake, make(fake, tmp_path))
    assert json.loads(kept.read_text())["tokens"] == value["tokens"]


async def test_tokens_of_another_address_or_client_do_not_count(guarded: Any, tmp_path: Path) -> None:
    fake = guarded()
    await ask(fake, make(fake, tmp_path, browser=Browser()))
    with pytest.raises(LoginNeeded):
        await ask(fake, make(fake, tmp_path, config=AuthConfig(type="oauth", client_id="other")))


@pytest.mark.parametrize("token_url", [False, True])
async def test_the_daemons_own_credentials(guarded: Any, tmp_path: Path, token_url: bool) -> None:
    fake = guarded("expires_in=1")
    config = AuthConfig(
        type="client_credentials",
        client_id="robot",
        client_secret="open-sesame",
        token_url=fake.url("/oauth/token") if token_url else None,
    )
    login = make(fake, tmp_path, config=config)
    assert await ask(fake, login) == 200
    await trio.sleep(1.2)
    assert await ask(fake, login) == 200
    assert set(get(fake, "/grants")) == {"client_credentials"}


async def test_a_secret_is_shown_to_no_other_authorization_server_than_the_first(guarded: Any, tmp_path: Path) -> None:
    fake = guarded("expires_in=1")
    config = AuthConfig(type="client_credentials", client_id="robot", client_secret="open-sesame")
    assert await ask(fake, make(fake, tmp_path, config=config)) == 200
    shown = get(fake, "/secrets")
    assert len(shown) == 1
    kept = token_file(tmp_path, "far")
    value = json.loads(kept.read_text())
    value["metadata"]["issuer"] = "https://the-first.example/"
    value["metadata"]["token_endpoint"] = "https://127.0.0.1:9/token"
    kept.write_text(json.dumps(value))
    get(fake, "/revoke")
    with pytest.raises(OAuthFlowError):
        await ask(fake, make(fake, tmp_path, config=config))
    assert get(fake, "/secrets") == shown


async def test_a_damaged_file_is_no_login_and_no_crash(guarded: Any, tmp_path: Path) -> None:
    fake = guarded()
    kept = token_file(tmp_path, "far")
    kept.parent.mkdir()
    for damage in (
        b"",
        b"[]",
        b'{"url": "x"',
        b"\xff\xff",
        json.dumps({"url": fake.url(), "tokens": {"a": 1}}).encode(),
    ):
        kept.write_bytes(damage)
        with pytest.raises(LoginNeeded):
            await ask(fake, make(fake, tmp_path))


async def test_the_file_of_another_run_is_replaced_whole(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "auth" / "far.json", "http://x/mcp", OAUTH)
    await file.set_tokens(OAuthToken(access_token="one"))
    await file.set_tokens(OAuthToken(access_token="two"))
    again = TokenFile(tmp_path / "auth" / "far.json", "http://x/mcp", OAUTH)
    assert again.load()
    tokens = await again.get_tokens()
    assert tokens is not None
    assert tokens.access_token == "two"
    assert [path.name for path in (tmp_path / "auth").iterdir()] == ["far.json"]


@pytest.mark.parametrize("path", ["oauth-protected-resource", "oauth-authorization-server"])
async def test_what_an_authorization_server_says_without_end_is_cut_off(
    guarded: Any, tmp_path: Path, path: str
) -> None:
    fake = guarded(f"endless=/.well-known/{path}")
    login = make(fake, tmp_path, browser=Browser())
    async with httpx2.AsyncClient(auth=login, timeout=10, event_hooks={"response": [bound_answer]}) as client:
        with trio.fail_after(5), pytest.raises(httpx2.RemoteProtocolError, match="more than 1048576 bytes"):
            await client.post(fake.url(), json={})
