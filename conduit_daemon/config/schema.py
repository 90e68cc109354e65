"""The configuration as a JSON Schema, so that editors complete keys and mark mistakes while a person types.

It is the model's own, in the file's spelling: sizes as ``"64MiB"``, permissions as ``"0660"``, no null (TOML has
none), and a reference such as ``"${env:LEVEL}"`` where a word is chosen from a list. What only ``conduit check``
can know (which files exist, what a condition says, what tables say of each other) is not in it.
"""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from conduit_daemon.config import model
from conduit_daemon.config.check import SERVER_ID
from conduit_daemon.config.model import UNTRUSTED, Config, PolicyConfig, PolicyRule, PolicyTest, ServerConfig

__all__ = ["json_schema"]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = {"type": "string", "pattern": r"\$\{"}
_SIZE: Final = {"type": ["integer", "string"], "pattern": r"^[0-9]{1,15}(\.[0-9]{1,6})? *([KMGkmg]i?)?[Bb]$|\$\{"}
_MODE: Final = {"type": ["integer", "string"], "pattern": r"^(0o?)?[0-7]{1,4}$|\$\{"}
_FORMS: Final = {"size": _SIZE, "mode": _MODE}
_UNITS: Final = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_AS_WRITTEN: Final = frozenset({PolicyConfig, PolicyRule, PolicyTest})  # no references are resolved in these
_ABSENT: Final = re.compile(r"\bNone(?= (?:for|to)\b)")
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.+(?:\n {8,}.+)*)", re.MULTILINE)


def json_schema() -> dict[str, Any]:
    """The schema of a whole configuration file.

    Example:
        >>> schema = json_schema()
        >>> schema["properties"]["watch"]["type"], schema["additionalProperties"]
        ('boolean', False)
    """
    _, found = msgspec.json.schema_components((Config,), ref_template="#/$defs/{name}", schema_hook=_path)
    definitions: dict[str, Any] = dict(found)
    for name, definition in definitions.items():
        _spell(definition, getattr(model, name))
    _name_servers(definitions)
    root = definitions.pop("Config")
    return {"$schema": _DIALECT, **root, "title": "Conduit's configuration", "$defs": definitions}


def _path(kind: type) -> dict[str, Any]:
    return {"type": "string"}  # paths are the model's only type that JSON does not know


def _name_servers(definitions: dict[str, Any]) -> None:
    servers = definitions["Config"]["properties"]["servers"]
    servers["propertyNames"] = {"pattern": f"^{SERVER_ID.pattern}$", "not": {"const": UNTRUSTED}}
    definitions[ServerConfig.__name__]["oneOf"] = [{"required": ["command"]}, {"required": ["url"]}]


def _spell(definition: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    words = inspect.cleandoc(kind.__doc__ or "")
    definition["description"] = _plain(words.partition("\n\n")[0])
    told = {name: _plain(text) for name, text in _ATTRIBUTE.findall(words)}
    hints = get_type_hints(kind, include_extras=True)
    for name, found in definition["properties"].items():
        spelled = _in_the_file(found, _form(hints[name]), references=kind not in _AS_WRITTEN)
        definition["properties"][name] = {"description": told[name], **spelled} if name in told else spelled
    if not definition["required"]:
        del definition["required"]


def _in_the_file(found: dict[str, Any], form: str | None, *, references: bool) -> dict[str, Any]:
    spelled = {key: value for key, value in found.items() if key != "default"}
    if "anyOf" in spelled:
        (spelled,) = (option for option in spelled["anyOf"] if option != {"type": "null"})
    default = found.get("default")
    if form in _FORMS:
        spelled |= _FORMS[form]
        default = None if default is None else _size(default) if form == "size" else f"{default:04o}"
    elif "enum" in spelled and references:
        spelled = {"anyOf": [spelled, _REFERENCE]}
    if default is not None and not isinstance(default, dict):  # a table's defaults are those of its keys
        spelled["default"] = list(default) if isinstance(default, tuple) else default
    return spelled


def _form(hint: Any) -> str | None:
    if get_origin(hint) is not Annotated:
        return next((form for option in get_args(hint) if (form := _form(option))), None)
    notes = (note for note in get_args(hint)[1:] if isinstance(note, msgspec.Meta) and note.extra)
    return next((str(note.extra["form"]) for note in notes if note.extra), None)


def _size(count: int) -> int | str:
    return next((f"{count // unit}{name}" for unit, name in _UNITS if count % unit == 0), count)


def _plain(text: str) -> str:
    return _ABSENT.sub("leave it out", " ".join(text.replace("``", "`").split()))
