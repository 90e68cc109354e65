"""How answers are read, and what is said where there is none."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from conduit_daemon.agent._errors import CallFailed
from conduit_daemon.agent._link import NotSent, Slot
from conduit_daemon.agent._results import Event
from conduit_daemon.agent.requests import Subscription

__all__ = ["decode", "ended", "read_item", "too_late"]

T = TypeVar("T")


def decode(method: str, raw: msgspec.Raw, answer: type[T]) -> T:
    """Reads a result.

    Raises:
        CallFailed: ``protocol``: it is not what this version of the library expects.
    """
    try:
        return msgspec.json.decode(raw, type=answer)
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"The daemon's answer to {method} cannot be read: {error}."
        raise CallFailed("protocol", -31008, message, "failed", {"kind": "protocol"}) from error


def too_late(slot: Slot, timeout: float) -> CallFailed:
    """The error of a request that was given up."""
    message = f"No answer to {slot.method} came within {timeout:g} s; it was cancelled."
    return CallFailed("timeout", -31003, message, "outcome_unknown" if slot.sent else "not_sent", {"kind": "timeout"})


def read_item(subscription: Subscription[T], raw: msgspec.Raw) -> T:
    """Reads one notification of a stream."""
    item = decode(subscription.notification, raw, subscription.item)
    if isinstance(item, Event):
        item = msgspec.structs.replace(item, fields=decode(subscription.notification, raw, dict))
    return item


def ended(slot: Slot) -> None:
    """Looks at why a stream ended; nothing is wrong where the daemon ended it with a result.

    Raises:
        CallFailed: It was refused, or the connection was lost.
    """
    try:
        slot.result()
    except NotSent as error:
        message = f"The daemon ended the connection before it took {slot.method}; try again."
        raise CallFailed("unavailable", -31004, message, "not_sent", {"kind": "unavailable"}) from error
