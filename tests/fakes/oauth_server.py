"""An MCP server over HTTP that wants a login, and its authorization server, in one process.

    python oauth_server.py PORT [BEHAVIOUR[=VALUE] ...]

All of `http_server` behind bearer tokens. The authorization server asks nobody: whoever comes to /authorize has agreed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import sys
import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from http_server import BEHAVIOURS, Handler, Server

"""
expires_in=S    how long a token is good (3600)
deny            the person refuses
endless=PATH    answers GET of this path without an end
"""

CODES: dict[str, dict[str, str]] = {}
TOKENS: dict[str, float] = {}
REFRESHERS: set[str] = set()
GRANTS: list[str] = []
SECRETS: list[str] = []


class Protected(Handler):
    """Lets in whoever has a token that is good."""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer_json(self, status: int, value: Any) -> None:
        self.answer(status, json.dumps(value).encode())

    def let_in(self) -> bool:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if TOKENS.get(token, 0) < time.time():
            where = f"{self.base}/.well-known/oauth-protected-resource"
            self.answer(401, www_authenticate=f'Bearer resource_metadata="{where}"')
            return False
        return super().let_in()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        match parts.path:
            case path if path == BEHAVIOURS.get("endless"):
                self.begin_events()
                while True:
                    self.write_event("more and more " * 5000)
            case "/.well-known/oauth-protected-resource":
                self.answer_json(200, {"resource": f"{self.base}/mcp", "authorization_servers": [self.base]})
            case "/.well-known/oauth-authorization-server":
                endpoints = {name: f"{self.base}/oauth/{name}" for name in ("authorize", "token", "register")}
                self.answer_json(
                    200,
                    {
                        "issuer": self.base,
                        "authorization_endpoint": endpoints["authorize"],
                        "token_endpoint": endpoints["token"],
                        "registration_endpoint": endpoints["register"],
                        "code_challenge_methods_supported": ["S256"],
                        "response_types_supported": ["code"],
                        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
                    },
                )
            case "/oauth/authorize" if "deny" in BEHAVIOURS:
                back = {"error": "access_denied", "error_description": "the person refused", "state": query["state"]}
                self.answer(302, location=f"{query['redirect_uri']}?{urlencode(back)}")
            case "/oauth/authorize":
                code = secrets.token_urlsafe(8)
                CODES[code] = query
                back = {"code": code, "state": query["state"]}
                self.answer(302, location=f"{query['redirect_uri']}?{urlencode(back)}")
            case path if path.startswith("/.well-known/"):
                self.answer(404)
            case "/secrets":
                self.answer_json(200, SECRETS)
            case "/grants":
                self.answer_json(200, GRANTS)
            case "/revoke":
                TOKENS.clear()
                if query.get("all"):
                    REFRESHERS.clear()
                self.answer(204)
            case _:
                super().do_GET()

    def do_POST(self) -> None:
        if not self.path.startswith("/oauth/"):
            super().do_POST()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/oauth/register":
            wanted = json.loads(body)
            GRANTS.append("register")
            self.answer_json(201, {**wanted, "client_id": "registered", "token_endpoint_auth_method": "none"})
            return
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        GRANTS.append(form["grant_type"])
        SECRETS.extend(filter(None, [self.headers.get("Authorization"), form.get("client_secret")]))
        if not self.granted(form):
            self.answer_json(400, {"error": "invalid_grant"})
            return
        token, refresher = secrets.token_urlsafe(8), secrets.token_urlsafe(8)
        seconds = int(BEHAVIOURS.get("expires_in") or 3600)
        TOKENS[token] = time.time() + seconds
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": seconds}
        if form["grant_type"] != "client_credentials":
            REFRESHERS.add(refresher)
            answer["refresh_token"] = refresher
        self.answer_json(200, answer)

    def granted(self, form: dict[str, str]) -> bool:
        match form["grant_type"]:
            case "authorization_code":
                asked = CODES.pop(form["code"], {})
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                return challenge == asked.get("code_challenge") and form["redirect_uri"] == asked.get("redirect_uri")
            case "refresh_token":
                known = form["refresh_token"] in REFRESHERS
                REFRESHERS.discard(form["refresh_token"])
                return known
            case _:
                basic = base64.b64encode(b"robot:open-sesame").decode()
                return self.headers.get("Authorization") == f"Basic {basic}"


def main() -> None:
    server = Server(("127.0.0.1", int(sys.argv[1])), Protected)
    print(server.server_address[1], flush=True)
    server.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main()
