"""Secrets that stand in a server's table, moved out of it: each becomes a ``${env:NAME}``.

What a secret is, is guessed from where it stands (a variable, header, option or parameter whose name speaks of
one), and from what it looks like (tokens of well-known makers, a password in a URL). A guess too many costs the
person one variable; a guess too few leaves a secret where it was before, in plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from conduit_daemon.config.expand import speaks_of_secret

__all__ = ["Moved", "Vault"]

_REFERENCE: Final = re.compile(r"(?<!\$)\$\{")
_NOT_SECRET: Final = re.compile(
    r"(_|-)(file|path|dir|directory|url|uri|sock|socket|type|mode|method|server|host|port|timeout)$"
    r"|(^|_|-)(authors?|keyboard|keywords?|tokenizer)$",
    re.IGNORECASE,
)
_HARMLESS: Final = re.compile(r"true|false|yes|no|on|off|none|", re.IGNORECASE)
_COUNT: Final = re.compile(r"\d{1,9}")
_COUNTED: Final = re.compile(r"max|min|limit|count|length|size|budget|expir|ttl", re.IGNORECASE)
_MAKERS: Final = re.compile(
    r"\b(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|hf_\w{20,}|npm_\w{30,}|lin_api_\w{20,}|ntn_\w{20,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_LOGIN: Final = re.compile(r"\b([a-z][a-z0-9+.-]*://[^/\s:@]*):([^/\s@]+)@", re.IGNORECASE)
_PARAMETER: Final = re.compile(r"([?&])([\w.-]+)=([^&#\s]+)")
_SCHEME: Final = re.compile(r"(?:Bearer|Basic|Token|ApiKey)\s+(?=\S)", re.IGNORECASE)
_HEADER: Final = re.compile(r"([A-Za-z][\w-]*)(\s*:\s*)(.+)", re.DOTALL)
_OPTION: Final = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)


class Moved(msgspec.Struct, frozen=True):
    """A secret that was moved out of a table.

    Attributes:
        name: The environment variable that stands for it now.
        server: The server's id.
        key: Where in the server's table it stood, as ``env.API_KEY`` or ``args[2]``.
    """

    name: str
    server: str
    key: str


class Vault:
    """Takes secrets out of tables and remembers under which names; equal secrets may share a name.

    Attributes:
        moved: What was moved, in the order found.
        values: The secrets by their variables' names; never shown.
    """

    def __init__(self) -> None:
        self.moved: list[Moved] = []
        self.values: dict[str, str] = {}

    def without_secrets(self, server: str, table: dict[str, Any]) -> dict[str, Any]:
        """A copy of the table of `server` with references in place of its secrets."""

        def at(key: str) -> Keep:
            return lambda wanted, value: self._reference(server, key, wanted, value)

        cleaned = dict(table)
        if isinstance(env := table.get("env"), dict):
            cleaned["env"] = {name: _variable(name, value, at(f"env.{name}")) for name, value in env.items()}
        if isinstance(headers := table.get("headers"), dict):
            cleaned["headers"] = {
                name: _header(server, name, value, at(f"headers.{name}")) for name, value in headers.items()
            }
        if isinstance(args := table.get("args"), list):
            cleaned["args"] = _arguments(server, args, at)
        if isinstance(url := table.get("url"), str):
            cleaned["url"] = _address(server, url, at("url"))
        return cleaned

    def _reference(self, server: str, key: str, wanted: str, value: str) -> str:
        plain = value.replace("$${", "${")
        name = self._free(_as_variable(wanted), _as_variable(server), plain)
        self.values[name] = plain
        self.moved.append(Moved(name, server, key))
        return f"${{env:{name}}}"

    def _free(self, wanted: str, server: str, value: str) -> str:
        name, number = wanted, 2
        while self.values.get(name, value) != value:
            name = f"{server}_{wanted}" if number == 2 and not wanted.startswith(server) else f"{wanted}_{number}"
            number += 1
        return name


Keep = Callable[[str, str], str]
"""Takes the variable's name that is wanted and a secret; returns the reference that stands for it."""


def _variable(name: str, value: Any, keep: Keep) -> Any:
    if not isinstance(value, str) or _REFERENCE.search(value):
        return value
    if _speaks(name) and not _HARMLESS.fullmatch(value) and not (_COUNT.fullmatch(value) and _COUNTED.search(name)):
        return keep(name, value)
    return _anywhere(value, keep, token=name, password=f"{name}_password")


def _header(server: str, name: str, value: Any, keep: Keep) -> Any:
    if not isinstance(value, str) or not value or _REFERENCE.search(value):
        return value
    return _credentials(server, name, value, keep) if _speaks(name) else _in_text(server, value, keep)


def _credentials(server: str, header: str, value: str, keep: Keep) -> str:
    scheme = _SCHEME.match(value)
    start = scheme.end() if scheme else 0
    return value[:start] + keep(f"{server}_{'token' if header.lower() == 'authorization' else header}", value[start:])


def _arguments(server: str, args: list[Any], at: Callable[[str], Keep]) -> list[Any]:
    """Options with their values, headers of bridges (``Authorization: Bearer x``), ``NAME=value`` of containers."""
    cleaned: list[Any] = []
    option: str | None = None
    for index, word in enumerate(args):
        keep = at(f"args[{index}]")
        awaited, option = option, None
        if not isinstance(word, str) or _REFERENCE.search(word):
            cleaned.append(word)
        elif awaited is not None and not word.startswith("-"):
            cleaned.append(keep(f"{server}_{awaited}", word))
        elif match := _OPTION.fullmatch(word):
            name, value = match.groups()
            if value and _speaks(name):
                cleaned.append(word[: match.start(2)] + keep(f"{server}_{name}", value))
            else:
                option = name if value is None and _speaks(name) else None
                cleaned.append(_address(server, word, keep))
        elif (match := _ASSIGNED.fullmatch(word)) and _speaks(match[1]):
            cleaned.append(f"{match[1]}={keep(f'{server}_{match[1]}', match[2])}")
        elif (match := _HEADER.fullmatch(word)) and _speaks(match[1]) and not match[3].startswith("//"):
            cleaned.append(f"{match[1]}{match[2]}{_credentials(server, match[1], match[3], keep)}")
        else:
            cleaned.append(_address(server, word, keep))
    return cleaned


def _address(server: str, url: str, keep: Keep) -> str:
    """A URL's secret parameters, and what may be in any text."""
    if _REFERENCE.search(url):
        return url

    def parameter(match: re.Match[str]) -> str:
        mark, name, value = match.groups()
        return f"{mark}{name}={keep(f'{server}_{name}', value) if _speaks(name) else value}"

    return _in_text(server, _PARAMETER.sub(parameter, url) if "://" in url else url, keep)


def _in_text(server: str, text: str, keep: Keep) -> str:
    return _anywhere(text, keep, token=f"{server}_token", password=f"{server}_password")


def _anywhere(text: str, keep: Keep, *, token: str, password: str) -> str:
    """A password in a URL, and tokens that are known by their looks."""
    found = _LOGIN.sub(lambda match: f"{match[1]}:{keep(password, match[2])}@", text)
    return _MAKERS.sub(lambda match: keep(token, match[0]), found)


def _speaks(name: str) -> bool:
    return speaks_of_secret(name) and not _NOT_SECRET.search(name)


def _as_variable(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
    return f"_{plain}" if plain[:1].isdigit() or not plain else plain
