"""Who has which name: the one registry, one for each ``trio.run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.lowlevel import RunVar

from supervisors._errors import AlreadyRegistered

if TYPE_CHECKING:
    from supervisors._process import Process

__all__ = ["holder", "register", "unregister"]

_NAMES: RunVar[dict[str, Process]] = RunVar("supervisors_names")


def holder(name: str) -> Process | None:
    """Returns the process of that name; None where there is none, or where trio does not run."""
    try:
        return _NAMES.get({}).get(name)
    except RuntimeError:
        return None


def register(name: str, process: Process) -> None:
    """Gives the process its name.

    Raises:
        AlreadyRegistered: Another process has it.
        TypeError: The name is not a string.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"A process is registered under a string that is not empty, not under {name!r}.")
    try:
        names = _NAMES.get()
    except LookupError:
        names = {}
        _NAMES.set(names)
    other = names.setdefault(name, process)
    if other is not process:
        raise AlreadyRegistered(other.ref, f"The name {name!r} belongs to {other.ref!r}; choose another, or stop that.")


def unregister(name: str, process: Process) -> None:
    """Frees the name, if it is that process's."""
    names = _NAMES.get({})
    if names.get(name) is process:
        del names[name]
