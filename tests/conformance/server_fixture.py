"""The server that the official conformance suite expects: its tools, resources and prompts, over stdio, in both eras.

    python server_fixture.py [modern]

The suite's descriptions of its scenarios say what each must answer. Standard library only.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

MODERN = "modern" in sys.argv
LOCK = threading.Lock()
WAITING: dict[Any, Any] = {}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="

Json = dict[str, Any]


def send(message: Json) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def ask(method: str, params: Json) -> Any:
    """Asks the host, in the way of the older era, and waits for its answer."""
    done = threading.Event()
    key = f"q{len(WAITING)}"
    WAITING[key] = done
    send({"id": key, "method": method, "params": params})
    done.wait(20)
    return WAITING[key]


def text(value: str) -> Json:
    return {"content": [{"type": "text", "text": value}]}


def properties(**kinds: Any) -> Json:
    wanted = {name: kind if isinstance(kind, dict) else {"type": kind} for name, kind in kinds.items()}
    return {"type": "object", "properties": wanted, "required": list(wanted)}


def elicitation(message: str, schema: Json) -> Json:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(prompt: str, tokens: int) -> Json:
    content = {"type": "text", "text": prompt}
    params = {"messages": [{"role": "user", "content": content}], "maxTokens": tokens}
    return {"method": "sampling/createMessage", "params": params}


ROOTS: Json = {"method": "roots/list", "params": {}}
NAME = elicitation("What is your name?", properties(name="string"))
DEFAULTS = properties(
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
TITLED = [{"const": f"value{i}", "title": f"{word} Option"} for i, word in enumerate(("First", "Second", "Third"), 1)]
ENUMS = properties(
    untitledSingle={"type": "string", "enum": ["option1", "option2", "option3"]},
    titledSingle={"type": "string", "oneOf": TITLED},
    legacyEnum={
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti={"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    titledMulti={"type": "array", "items": {"anyOf": TITLED}},
)
SCHEMA_2020: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

# What tools of the newer era want before they answer: rounds of (requests, state), then the answer.
WANTED: dict[str, tuple[list[Json], Callable[[Json], str]]] = {
    "elicitation": ([{"user_name": NAME}], lambda given: f"Hello, {given['user_name']['content']['name']}!"),
    "sampling": (
        [{"capital_question": sampling("What is the capital of France?", 100)}],
        lambda given: json.dumps(given["capital_question"]["content"]),
    ),
    "list_roots": ([{"client_roots": ROOTS}], lambda given: json.dumps(given["client_roots"]["roots"])),
    "request_state": (
        [{"confirm": elicitation("Please confirm", properties(ok="boolean"))}],
        lambda given: "state-ok",
    ),
    "multiple_inputs": (
        [{"user_name": NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}],
        json.dumps,
    ),
    "multi_round": (
        [
            {"step1": elicitation("Step 1: What is your name?", properties(name="string"))},
            {"step2": elicitation("Step 2: What is your favorite color?", properties(color="string"))},
        ],
        json.dumps,
    ),
    "tampered_state": ([{"confirm": elicitation("Please confirm", properties(ok="boolean"))}], json.dumps),
    "capabilities": ([{"user_name": NAME, "greeting": sampling("Greet", 50)}], json.dumps),
}


def input_required(name: str, params: Json) -> Json:
    rounds, finish = WANTED[name]
    if name == "capabilities":
        able = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        rounds = [{key: one for key, one in rounds[0].items() if one["method"].partition("/")[0] in able}]
    given = params.get("inputResponses") or {}
    place = int(str(params.get("requestState") or "0").rpartition(":")[2])
    if place and set(rounds[place - 1]) <= set(given):
        if place == len(rounds):
            return text(finish(given))
        place += 1
    else:
        place = max(place, 1)
    return {"resultType": "input_required", "inputRequests": rounds[place - 1], "requestState": f"{name}:{place}"}


class Refused(Exception):
    """A JSON-RPC error."""


def missing_capability(params: Json) -> Json:
    if "sampling" not in params["_meta"]["io.modelcontextprotocol/clientCapabilities"]:
        raise Refused(-32021, "Sampling is needed.", {"requiredCapabilities": {"sampling": {}}})
    return text("it is there")


def log_three_times(params: Json) -> Json:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        send({"method": "notifications/message", "params": {"level": "info", "data": words}})
        time.sleep(0.05)
    return text("logged")


def progress(params: Json) -> Json:
    token = (params.get("_meta") or {}).get("progressToken")
    for done in (0, 50, 100):
        if token is not None:
            told = {"progressToken": token, "progress": done, "total": 100}
            send({"method": "notifications/progress", "params": told})
        time.sleep(0.05)
    return text("done")


def sample(params: Json) -> Json:
    answer = ask("sampling/createMessage", sampling(params["arguments"]["prompt"], 100)["params"])
    return text(f"LLM response: {answer.get('content', {}).get('text', answer)}")


def elicit(message: str, schema: Json, said: str) -> Json:
    answer = ask("elicitation/create", elicitation(message, schema)["params"])
    return text(f"{said}: action={answer.get('action')}, content={json.dumps(answer.get('content', {}))}")


RESOURCE: Json = {"uri": "test://embedded-resource", "mimeType": "text/plain"}
MIXED: Json = {"uri": "test://mixed-content-resource", "mimeType": "application/json"}
CONTENT: dict[str, list[Json]] = {
    "test_simple_text": [{"type": "text", "text": "This is a simple text response for testing."}],
    "test_image_content": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        {"type": "resource", "resource": {**RESOURCE, "text": "This is an embedded resource content."}}
    ],
    "test_multiple_content_types": [
        {"type": "text", "text": "Multiple content types test:"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "resource", "resource": {**MIXED, "text": '{"test":"data","value":123}'}},
    ],
}
TOOLS: dict[str, tuple[Json, Callable[[Json], Json]]] = {
    **{
        name: ({"type": "object"}, lambda params, blocks=blocks: {"content": blocks})
        for name, blocks in CONTENT.items()
    },
    "test_tool_with_logging": ({"type": "object"}, log_three_times),
    "test_logging_tool": ({"type": "object"}, log_three_times),
    "test_error_handling": (
        {"type": "object"},
        lambda params: {**text("This tool intentionally returns an error for testing"), "isError": True},
    ),
    "test_tool_with_progress": ({"type": "object"}, progress),
    "test_sampling": (properties(prompt="string"), sample),
    "test_elicitation": (
        properties(message="string"),
        lambda params: elicit(
            params["arguments"]["message"], properties(username="string", email="string"), "User response"
        ),
    ),
    "test_elicitation_sep1034_defaults": (
        {"type": "object"},
        lambda params: elicit("Defaults?", DEFAULTS, "Elicitation completed"),
    ),
    "test_elicitation_sep1330_enums": (
        {"type": "object"},
        lambda params: elicit("Enums?", ENUMS, "Elicitation completed"),
    ),
    "json_schema_2020_12_tool": (SCHEMA_2020, lambda params: text(json.dumps(params.get("arguments")))),
    "test_streaming_elicitation": ({"type": "object"}, lambda params: input_required("elicitation", params)),
    "test_missing_capability": ({"type": "object"}, missing_capability),
    **{
        f"test_input_required_result_{name}": (
            {"type": "object"},
            lambda params, name=name: input_required(name, params),
        )
        for name in WANTED
    },
}
PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}
STATIC: dict[str, Json] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
}


def prompt(params: Json) -> Json:
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "test_input_required_result_prompt":
        given = params.get("inputResponses") or {}
        if "user_context" not in given:
            wanted = {"user_context": elicitation("What context should the prompt use?", properties(context="string"))}
            return {"resultType": "input_required", "inputRequests": wanted, "requestState": "prompt"}
        blocks: list[Json] = [{"type": "text", "text": json.dumps(given["user_context"])}]
    elif name == "test_simple_prompt":
        blocks = [{"type": "text", "text": "This is a simple prompt for testing."}]
    elif name == "test_prompt_with_arguments":
        told = f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"
        blocks = [{"type": "text", "text": told}]
    elif name == "test_prompt_with_image":
        blocks = [
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "text", "text": "Please analyze the image above."},
        ]
    else:
        embedded = {
            "uri": arguments["resourceUri"],
            "mimeType": "text/plain",
            "text": "Embedded resource content for testing.",
        }
        blocks = [
            {"type": "resource", "resource": embedded},
            {"type": "text", "text": "Please process the embedded resource above."},
        ]
    return {"messages": [{"role": "user", "content": block} for block in blocks]}


def read(uri: str) -> Json | None:
    if uri in STATIC:
        return {"contents": [{"uri": uri, **STATIC[uri]}]}
    if uri.startswith("test://template/") and uri.endswith("/data"):
        key = uri.removeprefix("test://template/").removesuffix("/data")
        told = json.dumps({"id": key, "templateTest": True, "data": f"Data for ID: {key}"})
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": told}]}
    return None


def listing(method: str) -> Json:
    if method == "tools/list":
        return {
            "tools": [
                {"name": name, "description": f"The suite's {name}.", "inputSchema": schema}
                for name, (schema, _) in TOOLS.items()
            ]
        }
    if method == "prompts/list":
        return {
            "prompts": [
                {
                    "name": name,
                    "description": f"The suite's {name}.",
                    "arguments": [{"name": argument, "description": argument, "required": True} for argument in wanted],
                }
                for name, wanted in PROMPTS.items()
            ]
        }
    if method == "resources/list":
        return {
            "resources": [
                {"uri": uri, "name": uri, "description": f"The suite's {uri}.", "mimeType": held["mimeType"]}
                for uri, held in STATIC.items()
            ]
        }
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "The suite's template."}
    return {"resourceTemplates": [template]}


CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
    "completions": {},
}


def answered(method: str, params: Json) -> Json | None:
    """The result of a request; None where there is no such method or resource."""
    match method:
        case "initialize":
            info = {"name": "suite", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}
        case "server/discover" if MODERN:
            return {
                "supportedVersions": ["2026-07-28"],
                "capabilities": CAPABILITIES,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        case "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list":
            return {**listing(method), **({"ttlMs": 0, "cacheScope": "private"} if MODERN else {})}
        case "tools/call":
            return TOOLS[params["name"]][1](params)
        case "prompts/get":
            return prompt(params)
        case "resources/read":
            return read(params["uri"])
        case "completion/complete":
            return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}
        case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" if not MODERN:
            return {}
    return None


def serve(request_id: Any, method: str, params: Json) -> None:
    try:
        result = answered(method, params)
    except Refused as error:
        code, words, data = error.args
        send({"id": request_id, "error": {"code": code, "message": words, "data": data}})
        return
    if result is None:
        send({"id": request_id, "error": {"code": -32602 if method == "resources/read" else -32601, "message": method}})
    else:
        send({"id": request_id, "result": {"resultType": "complete", **result} if MODERN else result})


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        done, WAITING[message["id"]] = WAITING.get(message["id"]), message.get("result", message.get("error"))
        if isinstance(done, threading.Event):
            done.set()
    elif message["method"] == "subscriptions/listen" and MODERN:
        mark = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        told = {"notifications": message["params"]["notifications"], "_meta": mark}
        send({"method": "notifications/subscriptions/acknowledged", "params": told})
    elif "id" in message:
        args = (message["id"], message["method"], message.get("params") or {})
        threading.Thread(target=serve, args=args, daemon=True).start()
