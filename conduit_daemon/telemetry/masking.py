"""Secrets taken out of whatever people look at: log lines, events, errors, status, servers' stderr.

Known secrets are replaced wherever they stand, in each form that text takes on its way through JSON,
URLs, Python's ``repr`` and base64. Results of tools are data and are never passed through here.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, quote_plus

import msgspec

__all__ = ["MASK", "SHORTEST", "Masker", "redact_arguments"]

MASK: Final = "[masked]"

SHORTEST: Final = 8
"""Characters from which on a value is masked; shorter ones are found in too many innocent words."""

_SCHEME: Final = re.compile(r"(?:bearer|basic|token|apikey|digest)\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_SECRET_KEY: Final = re.compile(
    r"(?:^|[_.-])(?:token|secret|passw(?:or)?d|passphrase|credentials?|cookie|authorization|auth)$"
    r"|(?:api|access|private|secret|signing|encryption)[_.-]?key$",
    re.IGNORECASE,
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_LONGEST_NUMBER: Final = 10**100  # str() refuses numbers of thousands of digits

T = TypeVar("T")


class Masker:
    """Replaces secrets by ``[masked]``.

    Secrets come from sources (the configuration, a server's OAuth session) and change while the daemon
    runs. What a source knew before its last update stays masked too, since late lines still show it.

    Example:
        >>> masker = Masker(["hunter2-hunter2"])
        >>> masker.mask("login with hunter2-hunter2 failed")
        'login with [masked] failed'
        >>> masker.mask_value({"url": "http://h/?t=hunter2-hunter2", "n": 1})
        {'url': 'http://h/?t=[masked]', 'n': 1}
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._sources: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._texts: tuple[str, ...] = ()
        self._blobs: tuple[bytes, ...] = ()
        self.update("", secrets)

    def update(self, source: str, secrets: Iterable[str]) -> None:
        """Mask `secrets` from now on, in place of what `source` gave the time before the last.

        The same secrets once more change nothing.

        Args:
            source: Who knows them, as ``config`` or ``auth:search``.
            secrets: Whole values; an ``Authorization`` header may come with its scheme. Values under
                8 characters are ignored.
        """
        _, previous = self._sources.get(source, (frozenset[str](), frozenset[str]()))
        given = frozenset(secrets)
        if given == previous:
            return
        self._sources[source] = (previous, given)
        forms = {
            form
            for generations in self._sources.values()
            for secret in frozenset().union(*generations)
            for form in _forms(secret)
        }
        texts = tuple(sorted(forms, key=len, reverse=True))
        # Replaced whole, as the log's thread reads them at the same time.
        self._texts, self._blobs = texts, tuple(text.encode("utf-8", "surrogatepass") for text in texts)

    def occurs_in(self, data: bytes) -> bool:
        """Whether any form of a secret stands in `data` (UTF-8, also of many lines at once)."""
        for blob in self._blobs:  # noqa: SIM110 - a third of the time that any() takes, and it is taken for each line
            if blob in data:
                return True
        return False

    def mask(self, text: str) -> str:
        """`text` without secrets; `text` itself where it has none."""
        found = [form for form in self._texts if form in text]
        return _cut(text, found) if found else text

    def mask_value(self, value: T) -> T:
        """`value` with each string in it masked at any depth, keys and whole numbers too.

        What holds no secret is not copied.

        Args:
            value: Anything made of dicts, lists, tuples and strings; msgspec.Raw is masked as text.
        """
        masked: T = self._masked(value)
        return masked

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            pairs = [(key, self._masked(key), item, self._masked(item)) for key, item in value.items()]
            if all(key is new_key and item is new_item for key, new_key, item, new_item in pairs):
                return value
            return {new_key: new_item for _, new_key, _, new_item in pairs}
        if isinstance(value, (list, tuple)):
            items = [self._masked(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return items
        if isinstance(value, (bytes, bytearray, memoryview, msgspec.Raw)):
            data = bytes(value)
            return self.mask(data.decode("utf-8", "replace")) if self.occurs_in(data) else value
        if type(value) is int and abs(value) < _LONGEST_NUMBER and str(value) in self._texts:
            return MASK
        return value


def redact_arguments(arguments: Any, masker: Masker) -> Any:
    """Arguments of a call, fit to be kept: no known secret, nor any string under a key that speaks of one.

    Args:
        arguments: A JSON value.
        masker: The known secrets.

    Example:
        >>> redact_arguments({"user": "ann", "api_key": "sk-1", "maxTokens": 5}, Masker())
        {'user': 'ann', 'api_key': '[masked]', 'maxTokens': 5}
    """
    return masker.mask_value(_without_named(arguments))


def _without_named(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: MASK if isinstance(item, str) and _speaks_of_secret(key) else _without_named(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without_named(item) for item in value]
    return value


def _speaks_of_secret(key: object) -> bool:
    return isinstance(key, str) and _SECRET_KEY.search(_CAMEL.sub("_", key)) is not None


def _cut(text: str, found: list[str]) -> str:
    # Spans are joined before anything is replaced: where two secrets overlap, replacing the one would
    # leave the other's rest in sight.
    spans = sorted((start, start + len(form)) for form in found for start in _positions(text, form))
    parts: list[str] = []
    end = 0
    for start, stop in spans:
        if start >= end:
            parts += [text[end:start], MASK]
        end = max(end, stop)
    return "".join(parts) + text[end:]


def _positions(text: str, form: str) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + 1)


def _forms(secret: str) -> Iterator[str]:
    """Each text under which `secret` may be met."""
    for part in _parts(secret):
        yield part
        escaped = {json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1]}
        # JSON is often text inside other JSON.
        yield from escaped | {json.dumps(form)[1:-1] for form in escaped}
        raw = part.encode("utf-8", "surrogatepass")
        for url in {quote(raw, safe=""), quote(raw), quote_plus(raw)}:
            yield url
            yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), url)
        yield from _base64(raw)


def _parts(secret: str) -> set[str]:
    """The secret itself, and what of it is shown alone: lines of a key, a token without its scheme."""
    parts = {secret, secret.strip(), *_CONTROL.split(secret), *(line.strip() for line in secret.splitlines())}
    if match := _SCHEME.fullmatch(secret.strip()):
        token = match[1]
        parts.add(token)
        try:
            _, _, password = base64.b64decode(token, validate=True).decode().partition(":")
            parts.add(password)
        except ValueError:
            pass  # no Basic credentials: the token is all there is to find
    return {part for part in parts if len(part) >= SHORTEST}


def _base64(raw: bytes) -> Iterator[str]:
    """What stays of `raw` in the base64 of any text that holds it, for each of the three alignments."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).rstrip(b"=").decode()
        start = -(-before * 8 // 6)
        stop = (before + len(raw)) * 8 // 6
        core = encoded[start:stop]
        yield core
        yield core.translate(str.maketrans("+/", "-_"))
