"""The official SDKs' own clients over `conduit mcp`, in every mode of negotiation they have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp import Client, StdioServerParameters

FAKES = Path(__file__).parents[1] / "fakes"
CONDUIT = Path(sys.executable).with_name("conduit")
ERAS = ("2025-11-25", "2026-07-28")
TYPESCRIPT = ("@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0")


def table(name: str, program: str, *words: str) -> str:
    args = json.dumps([str(FAKES / program), *words])
    return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {args}\n'


@pytest.fixture(params=ERAS)
def daemon(request: Any, start: Any) -> Any:
    """A daemon with servers of one era."""
    modern = ["modern"] if request.param == ERAS[1] else []
    served = start(table("a", "stdio_server.py", "late_tool", *modern), table("o", "offering_server.py", *modern))
    served.wait_ready("a", "o")
    return served


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_pythons_client(daemon: Any, mode: Any, version: str) -> None:
    changed, asked, logged = trio.Event(), [], []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"name": "Ann"})

    async def sample(context: Any, params: Any) -> types.CreateMessageResult:
        text = types.TextContent(type="text", text="hm")
        return types.CreateMessageResult(role="assistant", content=text, model="m")

    async def note(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async def log(params: Any) -> None:
        logged.append(params.data)

    progress: list[float] = []

    async def tick(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    bridge = StdioServerParameters(command=str(CONDUIT), args=["mcp", "--socket", str(daemon.agent)])
    with trio.fail_after(60):
        async with Client(
            bridge,
            mode=mode,
            elicitation_callback=elicit,
            sampling_callback=sample,
            message_handler=note,
            logging_callback=log,
            log_level="debug",
        ) as client:
            assert client.protocol_version == version
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"a__echo", "o__ask"} <= names
            result = await client.call_tool("a__add", {"a": 2, "b": 3})
            assert result.structured_content == {"sum": 5}
            wrong = await client.call_tool("a__add", {"a": "x", "b": 3})
            assert wrong.is_error
            assert "/a" in wrong.content[0].text
            await client.call_tool("a__tick", {"times": 3}, progress_callback=tick)
            assert progress == [1, 2, 3]
            with trio.move_on_after(0.3) as scope:
                await client.call_tool("a__sleep", {"seconds": 30})
            assert scope.cancelled_caught
            while not json.loads((await client.call_tool("a__received", {})).content[0].text):
                await trio.sleep(0.05)  # the cancellation reaches the server
            assert [one.uri for one in (await client.list_resources()).resources] == ["note://today"]
            assert (await client.list_resource_templates()).resource_templates[0].uri_template == "day://{date}"
            assert (await client.read_resource("day://x")).contents[0].text.startswith("day://x")
            assert [one.name for one in (await client.list_prompts()).prompts] == ["o__greet"]
            got = await client.get_prompt("o__greet", {"who": "Bo"})
            assert got.messages[0].content.text == "Hello Bo"
            ref = types.PromptReference(type="ref/prompt", name="o__greet")
            assert (await client.complete(ref, {"name": "who", "value": "B"})).completion.values == ["ref/prompt:B!"]
            said = await client.call_tool("o__ask", {"kind": "elicit"})
            assert json.loads(said.content[0].text)[0]["content"] == {"name": "Ann"}
            assert len(asked) == 1
            said = await client.call_tool("o__ask", {"kind": "sample"})
            assert json.loads(said.content[0].text)[0]["model"] == "m"
            await client.call_tool("o__log", {})
            assert "warning" in logged
            if version == "2026-07-28":
                async with client.listen(tools_list_changed=True) as events:
                    await client.call_tool("a__reveal", {})
                    async for event in events:
                        assert type(event).__name__ == "ToolsListChanged"
                        break
            else:
                await client.call_tool("a__reveal", {})
                await changed.wait()
            while "a__late" not in {tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools}:
                await trio.sleep(0.05)  # it was told of an earlier change


SCRIPT = """
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
const [sdk, command, socket, folder] = process.argv.slice(2);
const require = createRequire(folder + '/package.json');
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const first = sdk === 'v1';
const { Client } = await load(first ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StdioClientTransport } = await load(
  first ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio');
const types = first ? await load('@modelcontextprotocol/sdk/types.js') : null;
const out = {};
const options = { capabilities: { elicitation: {}, sampling: {} } };
if (!first) options.versionNegotiation = { mode: sdk === 'v2-auto' ? 'auto' : 'legacy' };
const client = new Client({ name: 'host', version: '1' }, options);
const on = (method, schema, handler) => client.setRequestHandler(first ? types[schema] : method, handler);
on('elicitation/create', 'ElicitRequestSchema', async () => ({ action: 'accept', content: { name: 'Ann' } }));
on('sampling/createMessage', 'CreateMessageRequestSchema', async () => (
  { role: 'assistant', content: { type: 'text', text: 'hm' }, model: 'm' }));
let changed;
const change = new Promise((resolve) => { changed = resolve; });
client.setNotificationHandler(
  first ? types.ToolListChangedNotificationSchema : 'notifications/tools/list_changed', () => changed());
await client.connect(new StdioClientTransport({ command, args: ['mcp', '--socket', socket] }));
out.version = first ? '2025-11-25' : client.getNegotiatedProtocolVersion();
out.tools = (await client.listTools()).tools.map((tool) => tool.name);
const call = (name, args, more) => first
  ? client.callTool({ name, arguments: args }, undefined, more) : client.callTool({ name, arguments: args }, more);
out.sum = (await call('a__add', { a: 2, b: 3 })).structuredContent;
out.progress = [];
await call('a__tick', { times: 3 }, { onprogress: (told) => out.progress.push(told.progress) });
const stop = new AbortController();
setTimeout(() => stop.abort(), 300);
out.cancelled = await call('a__sleep', { seconds: 30 }, { signal: stop.signal }).then(() => false, () => true);
do { out.received = JSON.parse((await call('a__received', {})).content[0].text); } while (!out.received.length);
out.resource = (await client.readResource({ uri: 'note://today' })).contents[0].text;
out.resources = (await client.listResources()).resources.map((one) => one.uri);
out.prompts = (await client.listPrompts()).prompts.map((one) => one.name);
out.prompt = (await client.getPrompt({ name: 'o__greet', arguments: { who: 'Bo' } })).messages[0].content.text;
const ref = { type: 'ref/prompt', name: 'o__greet' };
out.completion = (await client.complete({ ref, argument: { name: 'who', value: 'B' } })).completion.values;
out.elicited = JSON.parse((await call('o__ask', { kind: 'elicit' })).content[0].text)[0].content;
out.sampled = JSON.parse((await call('o__ask', { kind: 'sample' })).content[0].text)[0].model;
if (out.version === '2025-11-25') {
  await call('a__reveal', {});
  await change;
  do { out.late = (await client.listTools()).tools.some((tool) => tool.name === 'a__late'); } while (!out.late);
}
console.log(JSON.stringify(out));
await client.close();
"""


@pytest.mark.npm
@pytest.mark.parametrize(
    ("sdk", "version"), [("v1", "2025-11-25"), ("v2-legacy", "2025-11-25"), ("v2-auto", "2026-07-28")]
)
def test_typescripts_clients(daemon: Any, npm_install: Any, tmp_path: Path, sdk: str, version: str) -> None:
    folder = npm_install(*TYPESCRIPT).parents[1]
    script = tmp_path / "host.mjs"
    script.write_text(SCRIPT)
    done = subprocess.run(
        ["node", script, sdk, CONDUIT, daemon.agent, folder], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    out = json.loads(done.stdout)
    assert out["version"] == version
    assert {"a__echo", "o__ask"} <= set(out["tools"])
    assert out["sum"] == {"sum": 5}
    assert out["progress"] == [1, 2, 3]
    assert out["cancelled"] is True
    assert out["received"]
    assert (out["resource"], out["resources"]) == ("note://today: nothing much", ["note://today"])
    assert (out["prompts"], out["prompt"], out["completion"]) == (["o__greet"], "Hello Bo", ["ref/prompt:B!"])
    assert (out["elicited"], out["sampled"]) == ({"name": "Ann"}, "m")
    assert out.get("late", True) is True
