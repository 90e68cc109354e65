"""Three providers in one HTTP server: a model that asks for the time once, and then says what it was told.

    python rpc_providers.py FILE

It prints its port, and appends the body of every request to FILE, one JSON a line.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = "time__get_current_time"
ARGUMENTS = {"timezone": "Europe/Zurich"}


def anthropic(body):
    told = "tool_result" in json.dumps(body["messages"])
    call = {"type": "tool_use", "id": "toolu_1", "name": NAME, "input": ARGUMENTS}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": "It is late."} if told else call],
        "stop_reason": "end_turn" if told else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def chat(body):
    told = any(message["role"] == "tool" for message in body["messages"])
    function = {"name": NAME, "arguments": json.dumps(ARGUMENTS)}
    call = {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    message = {"role": "assistant", "refusal": None, **({"content": "It is late."} if told else call)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop" if told else "tool_calls"}
    return {"id": "c_1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice]}


def responses(body):
    told = any(item.get("type") == "function_call_output" for item in body["input"])
    text = {"type": "output_text", "text": "It is late.", "annotations": []}
    said = {"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": [text]}
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": NAME,
        "arguments": json.dumps(ARGUMENTS),
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": body["model"],
        "output": [said if told else call],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }


def gemini(body):
    told = "functionResponse" in json.dumps(body["contents"])
    call = {"functionCall": {"name": NAME, "args": ARGUMENTS}, "thoughtSignature": "c2lnbmVk"}
    content = {"role": "model", "parts": [{"text": "It is late."} if told else call]}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "modelVersion": "gemini"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with open(sys.argv[1], "a", encoding="utf-8") as file:
            file.write(json.dumps({"path": self.path, "body": body}) + "\n")
        for path, answer in (
            ("/messages", anthropic),
            ("/chat/completions", chat),
            ("/responses", responses),
            (":generateContent", gemini),
        ):
            if self.path.partition("?")[0].endswith(path):
                data = json.dumps(answer(body)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                return
        self.send_error(404)

    def log_message(self, *args):
        """Nothing is to be said on stderr."""


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


main()
