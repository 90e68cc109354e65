"""The client that the official conformance suite drives: the daemon's own `Client`, on its own HTTP transport.

    python client.py URL

The suite tells the scenario, its facts and the protocol's version in MCP_CONFORMANCE_SCENARIO,
MCP_CONFORMANCE_CONTEXT and MCP_CONFORMANCE_PROTOCOL_VERSION. What is particular to a scenario here is only what a
person would do in it: fill in a form with its defaults, log in, choose the arguments of a call.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import trio
from mcp.shared.auth import AuthorizationCodeResult

import supervisors
from conduit_daemon.clients.actor import Client, new_port, new_timeline
from conduit_daemon.clients.auth import Login, LoopbackPerson, TokenFile
from conduit_daemon.clients.host import ConfiguredHost, Question
from conduit_daemon.clients.port import Port
from conduit_daemon.clients.transport import Settings
from conduit_daemon.config import AuthConfig, LimitsConfig, ServerConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Tool
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import EventBus

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
VERSION: Any = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
PATIENCE = 20.0


class NoWarden:
    token = "unused"

    def watch(self, session: int) -> None: ...

    def forget(self, session: int, entry: str) -> None: ...


class WillingHost:
    """Answers all that a server can ask, as a person would who agrees to everything."""

    def __init__(self) -> None:
        self.capabilities: dict[str, dict[str, Any]] = {"roots": {}, "sampling": {}, "elicitation": {}}
        self.of_one_caller = True
        self._roots = ConfiguredHost((Path("/srv"),))

    def offered_to(self, caller: object) -> dict[str, Any]:
        return self.capabilities

    async def answer(self, question: Question) -> dict[str, Any]:
        match question.method:
            case "elicitation/create":
                fields = question.params.get("requestedSchema", {}).get("properties", {})
                content = {name: field.get("default", _example(field)) for name, field in fields.items()}
                return {"action": "accept", "content": content}
            case "sampling/createMessage":
                content = {"type": "text", "text": "All right."}
                return {"role": "assistant", "model": "none", "content": content, "stopReason": "endTurn"}
            case _:
                return await self._roots.answer(question)


class Headless:
    """A person with a browser, of whom only the redirects are left."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    async def send(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            answer = await client.get(url, follow_redirects=False)
        self._found = parse_qs(urlsplit(answer.headers.get("location", "")).query)

    async def wait(self) -> AuthorizationCodeResult:
        found = {key: values[0] for key, values in self._found.items()}
        return AuthorizationCodeResult(code=found.get("code", ""), state=found.get("state"), iss=found.get("iss"))


def login(url: str, state: Path) -> Login | None:
    """What signs the requests of a scenario about OAuth."""
    if not SCENARIO.startswith("auth/"):
        return None
    machine = "client-credentials" in SCENARIO
    config = AuthConfig(
        type="client_credentials" if machine else "oauth",
        client_id=CONTEXT.get("client_id") or CLIENT_DOCUMENT,
        client_secret=CONTEXT.get("client_secret"),
    )
    browser = Headless()
    person = LoopbackPerson("http://127.0.0.1:33418/callback", browser.send, browser.wait)
    return Login("tested", url, config, TokenFile(state / "tokens.json", url, config), None if machine else person)


def _example(schema: dict[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    examples = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    return examples.get(schema.get("type", ""), "text")


def calls(tools: list[Tool]) -> list[tuple[str, dict[str, Any]]]:
    """What is called: what the scenario says, else each tool once, with an example of each required argument."""
    if "toolCalls" in CONTEXT:
        return [(call["name"], call["arguments"]) for call in CONTEXT["toolCalls"]]
    if SCENARIO == "json-schema-2020-12-preservation":
        focal, echo = sorted(tools, key=lambda tool: "schema" in tool.input_schema.get("properties", {}))
        return [(echo.name, {"schema": focal.input_schema})]
    found = []
    for tool in tools:
        fields = tool.input_schema.get("properties", {})
        required = tool.input_schema.get("required", [])
        found.append((tool.name, {name: _example(fields.get(name, {})) for name in required}))
    return found


async def call(port: Port, name: str, arguments: dict[str, Any]) -> None:
    """Calls a tool and says what came of it."""
    done = trio.Event()

    def on_result(raw: msgspec.Raw | None, is_error: bool, error: ClientError | None) -> None:
        print(name, "->", bytes(raw).decode()[:200] if raw is not None else error, file=sys.stderr)
        done.set()

    try:
        port.begin(name, arguments, on_result, meta={}, total=PATIENCE)
    except ClientError as error:
        on_result(None, False, error)
        return
    await done.wait()


async def main(url: str) -> int:
    """Connects, lists, calls; 0 where the server could be used."""
    with tempfile.TemporaryDirectory() as state:
        settings = Settings(
            server="tested",
            config=ServerConfig(url=url, protocol=VERSION),
            limits=Published(LimitsConfig()),
            version="0",
            environ=os.environ,
            clean=lambda text: text,
            host=WillingHost(),
            auth=login(url, Path(state)),
        )
        port = new_port("tested")
        looked = trio.Event()

        def look(server: str) -> None:
            if port.standing.state not in ("connecting",):
                looked.set()

        def start() -> Client:
            return Client(settings, port, NoWarden(), EventBus(), new_timeline(), look)

        with trio.move_on_after(PATIENCE):
            async with supervisors.open_supervisor([supervisors.ChildSpec(id="tested", start=start)]):
                await looked.wait()
                if port.target is None or port.listing is None:
                    print(port.standing.reason, file=sys.stderr)
                    return 1
                async with trio.open_nursery() as nursery:
                    for name, arguments in calls(list(port.listing.tools)):
                        nursery.start_soon(call, port, name, arguments)
                return 0
        return 1


if __name__ == "__main__":
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    sys.exit(trio.run(main, sys.argv[1]))
