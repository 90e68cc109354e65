"""How the functions that build requests become the methods of a client."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["described"]


def described(method: Callable[..., Any], build: Callable[..., Any], owner: str) -> None:
    """Gives a method the name, the words and the parameters of the function that builds its request."""
    method.__name__ = build.__name__
    method.__qualname__ = f"{owner}.{build.__name__}"
    method.__doc__ = build.__doc__
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    asked = inspect.signature(build).parameters.values()
    method.__signature__ = inspect.Signature([itself, *asked])  # type: ignore[attr-defined]
