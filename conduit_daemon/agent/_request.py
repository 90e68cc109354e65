"""What a request to the daemon is, as data: what goes out, and how the answer is read."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["Done", "Level", "Request", "Subscription", "Text", "given"]

T = TypeVar("T")


class Request(msgspec.Struct, Generic[T], frozen=True):
    """One request.

    Attributes:
        method: The JSON-RPC method.
        params: Its parameters.
        answer: The type of the result.
        control: Whether only the control socket takes it.
    """

    method: str
    params: dict[str, Any]
    answer: type[T]
    control: bool = False


class Subscription(msgspec.Struct, Generic[T], frozen=True):
    """A request that stays open while notifications come.

    Attributes:
        method: The JSON-RPC method.
        params: Its parameters.
        notification: The method of the notifications.
        item: The type of one notification's parameters.
        control: Whether only the control socket takes it.
    """

    method: str
    params: dict[str, Any]
    notification: str
    item: type[T]
    control: bool = False


class Done(msgspec.Struct, frozen=True):
    """An answer that says no more than that it was done."""


class Text(msgspec.Struct, frozen=True):
    """An answer that is a text."""

    text: str = ""


class Level(msgspec.Struct, frozen=True):
    """An answer that is a log level."""

    level: str = ""


def given(**params: Any) -> dict[str, Any]:
    """The parameters that are not None."""
    return {name: value for name, value in params.items() if value is not None}
