"""The SDK, imported when the first server is connected, and no more of it than is used.

It costs half a second and 37 MiB, of which its server has half, with what that needs (starlette, uvicorn,
cryptography): the packages ``mcp`` and ``mcp.client`` import it in their ``__init__``. Here these packages are made
without running that; it is run when somebody asks one of them for a name (``from mcp import ...`` in a hook), so that
nobody else sees a difference.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

import trio

from conduit_daemon.collector import large_data

__all__ = ["import_sdk"]

_IMPORTING: Final[trio.lowlevel.RunVar[trio.Lock]] = trio.lowlevel.RunVar("conduit.importing_the_sdk")
_PACKAGES: Final = ("mcp", "mcp.client")
_WANTED: Final = ("mcp.client.session", "mcp.client._probe", "mcp.client.subscriptions", "anyio._backends._trio")
"""The last comes with anyio's first event."""


async def import_sdk(*more: str) -> None:
    """Imports the SDK's client without stopping the loop for it, then or later.

    Args:
        more: Modules that stand on it, of this package.
    """
    try:
        turn = _IMPORTING.get()
    except LookupError:
        turn = trio.Lock()
        _IMPORTING.set(turn)
    async with turn:  # whoever came upon a module half imported would wait for the rest, and the loop with it
        for module in (*_WANTED, *more):
            if module not in sys.modules:
                await trio.to_thread.run_sync(_import, module)


def _import(module: str) -> None:
    with large_data():
        for package in _PACKAGES:
            if package not in sys.modules:
                _put_off(package)
        importlib.import_module(module)


def _put_off(package: str) -> None:
    """Makes the package such that its modules can be imported, and runs its ``__init__`` when that is needed."""
    spec = find_spec(package)
    if spec is None or spec.loader is None:
        return  # not installed: who imports it is told
    module, loader = module_from_spec(spec), spec.loader

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        _run_init(module, loader)
        return getattr(module, name)

    module.__getattr__ = __getattr__  # type: ignore[method-assign]
    sys.modules[package] = module
    parent, _, name = package.rpartition(".")
    if parent:
        setattr(sys.modules[parent], name, module)


def _run_init(module: ModuleType, loader: Any) -> None:
    del module.__getattr__  # first, for the names that it imports from itself
    loader.exec_module(module)
