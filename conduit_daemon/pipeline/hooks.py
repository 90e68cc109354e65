"""The operator's own code around each call: ``module:function``, before it is sent and after it was answered."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, final

import msgspec

from conduit_daemon.config.model import HooksConfig
from conduit_daemon.errors import ClientError, DaemonError
from conduit_daemon.model import Call, Outcome
from conduit_daemon.pipeline.background import settled
from conduit_daemon.pipeline.refusal import Refusal

__all__ = ["Hooks", "Refusal", "load_hooks"]

_SENTENCE: Final = 2000


@final
class Hooks:
    """Hooks, found and ready.

    ``before(call)`` returns the call with other arguments, a `Refusal`, or None for no objection. ``after(call,
    outcome)`` returns an outcome in place of the one it was given, or None. Both may be coroutine functions (trio);
    those that are not run in the event loop, so they must be quick. Each gets a copy of what it may look at.

    Attributes:
        before: Run before a call is sent, in this order; the next sees what the one before it returned.
        after: Run when it was answered, likewise.
    """

    def __init__(self, before: Iterable[Callable[..., Any]] = (), after: Iterable[Callable[..., Any]] = ()) -> None:
        self.before = tuple(before)
        self.after = tuple(after)

    async def run_before(self, call: Call) -> Call:
        """Has every ``before`` hook look at `call`; for `Background.start`.

        Returns:
            `call` itself, or one with other arguments or meta; all else of it stays as it was.

        Raises:
            ClientError: ``denied``: a hook refuses it.
            Exception: What a hook raises.
        """
        for hook in self.before:
            answer = await settled(hook(_copied(call)))
            if answer is None:
                continue
            if isinstance(answer, Refusal):
                text = str(answer.message)[:_SENTENCE]
                raise ClientError("denied", text, data={"rule": _name(hook)})
            if not isinstance(answer, Call):
                raise TypeError(f"{_name(hook)} must return a call, a Refusal or None, not {type(answer).__name__}")
            if not isinstance(answer.arguments, dict):
                raise TypeError(f"{_name(hook)} returned a call whose arguments are no dict")
            call = msgspec.structs.replace(call, arguments=answer.arguments, meta=answer.meta)
        return call

    async def run_after(self, call: Call, outcome: Outcome) -> Outcome:
        """Has every ``after`` hook look at what came of `call`; for `Background.start`.

        Returns:
            `outcome` itself, or one with another result or error; all else of it stays as it was.

        Raises:
            Exception: What a hook raises, or why what it returned cannot be used.
        """
        for hook in self.after:
            shown = msgspec.structs.replace(outcome, call=_copied(call))
            answer = await settled(hook(shown.call, shown))
            if answer is None or answer is shown:
                continue
            if not isinstance(answer, Outcome):
                raise TypeError(f"{_name(hook)} must return an outcome or None, not {type(answer).__name__}")
            outcome = _changed(outcome, answer)
        return outcome


def load_hooks(config: HooksConfig, folder: Path | None = None) -> Hooks:
    """Imports the hooks that a configuration names.

    Args:
        config: The ``[hooks]`` table.
        folder: The configuration's folder, where modules are looked for after all other places.

    Raises:
        DaemonError: One cannot be imported, or is nothing that can be called.
    """
    wanted = (*config.before_call, *config.after_call)
    if wanted and folder is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))
    return Hooks([_load(hook) for hook in config.before_call], [_load(hook) for hook in config.after_call])


def _load(hook: str) -> Callable[..., Any]:
    module, _, path = hook.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (Exception, SystemExit) as error:
        raise DaemonError(f"The hook {hook} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise DaemonError(f"The hook {hook} is a {type(found).__name__}, which cannot be called.")
    function: Callable[..., Any] = found
    return function


def _copied(call: Call) -> Call:
    """`call` with values of its own, so that only what a hook returns counts."""
    arguments, meta, assigns = copy.deepcopy((call.arguments, call.meta, call.assigns))
    return msgspec.structs.replace(call, arguments=arguments, meta=meta, assigns=assigns)


def _changed(outcome: Outcome, answer: Outcome) -> Outcome:
    """`outcome` with what the hook may change of it."""
    error = answer.error
    if error is not None:
        if error.outcome == "not_sent":  # the default of an error, which would be taken for leave to call again
            error.outcome = "failed"
        return msgspec.structs.replace(
            outcome, kind=error.kind, error=error, sent=error.outcome, result=msgspec.Raw(b""), halt=answer.halt
        )
    if answer.result is outcome.result:
        return msgspec.structs.replace(outcome, halt=answer.halt)
    # Written anew: it goes into a line of its own as it is, and must be one value without a line break.
    result = msgspec.json.decode(answer.result)
    if not isinstance(result, dict):
        raise TypeError(f"a result must be an object, not {type(result).__name__}")
    kind = "tool_error" if result.get("isError") is True else "ok"
    raw = msgspec.Raw(msgspec.json.encode(result))
    return msgspec.structs.replace(outcome, kind=kind, error=None, result=raw, sent="done", halt=answer.halt)


def _name(hook: Callable[..., Any]) -> str:
    return f"{getattr(hook, '__module__', '?')}:{getattr(hook, '__qualname__', type(hook).__name__)}"
