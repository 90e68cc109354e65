"""How a connection ended, in words for people and in errors for its calls. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from conduit_daemon.clients.observer import Ended
from conduit_daemon.clients.transport import Loss
from conduit_daemon.errors import ClientError

__all__ = ["call_lost", "ended_by_loss", "ended_by_refusal", "first_leaf"]

_LONGEST: Final = 400
_LAST_WORDS: Final = 200
_FATE: Final = " The call may have taken effect."
_NEEDS_ATTENTION: Final = (401, 403)


def ended_by_loss(
    server: str,
    loss: Loss,
    *,
    ready_for: float | None,
    starting: bool,
    probing: bool,
    clean: Callable[[str], str],
) -> Ended:
    """The end of a connection whose server was lost.

    Args:
        server: The server's id.
        loss: What its transport tells.
        ready_for: Seconds that it was ready; None where it never was.
        starting: Whether it was there and not ready yet.
        probing: Whether it had been asked for the newer era, and has not answered that.
        clean: Masks secrets.
    """
    reason = _shown(f"server {server} {loss.reason}", clean)
    kind: Literal["misconfigured", "probe", "start", "lost"] = "start" if ready_for is None else "lost"
    if loss.attention:
        kind = "misconfigured"
    elif starting:
        reason += " during start"
        if loss.exit is not None and probing:
            kind = "probe"
    if loss.exit is not None and loss.words:
        reason += f": {loss.words[-1][:_LAST_WORDS]}"
    return Ended(
        kind=kind,
        reason=reason,
        exit=loss.exit,
        stderr=loss.words,
        ready_for=ready_for or 0.0,
        retry_after=loss.retry_after,
    )


def ended_by_refusal(
    server: str,
    failed: BaseException,
    *,
    ready_for: float | None,
    stderr: tuple[str, ...],
    clean: Callable[[str], str],
) -> Ended:
    """The end of a connection on which nothing could be agreed.

    Args:
        server: The server's id.
        failed: What the SDK's session, or a request of ours, failed with.
        ready_for: As above.
        stderr: The server's last lines.
        clean: As above.
    """
    kind: Literal["misconfigured", "start", "lost"] = "start" if ready_for is None else "lost"
    retry_after: float | None = None
    status: int | None = None
    error = failed if isinstance(failed, ClientError) else failed.__cause__
    if isinstance(error, ClientError):
        text = error.message[:1].lower() + error.message[1:].removesuffix(_FATE).rstrip(".")
        if "http_status" in error.data:
            retry_after = error.retry_after
            status = error.data["http_status"] if error.kind == "unavailable" else None
        if error.data.get("http_status") in _NEEDS_ATTENTION:
            kind = "misconfigured"
    else:
        text = f"server {server} could not be agreed with on a protocol: {_why(failed)}"
    return Ended(
        kind=kind,
        reason=_shown(text, clean),
        stderr=stderr,
        ready_for=ready_for or 0.0,
        retry_after=retry_after,
        http_status=status,
    )


def call_lost(server: str, ended: Ended, *, sent: bool) -> ClientError:
    """The error of a call whose connection has ended; `sent` tells whether the server may have seen any of it."""
    data: dict[str, Any] = {"stderr": list(ended.stderr)} if ended.stderr else {}
    if ended.exit is not None:
        if ended.exit.code is not None:
            data["exit_code"] = ended.exit.code
        if ended.exit.signal is not None:
            data["signal"] = ended.exit.signal
    return ClientError(
        "unavailable",
        f"{ended.reason[:1].upper()}{ended.reason[1:]}.{_FATE if sent else ' Nothing was sent.'}",
        server,
        outcome="outcome_unknown" if sent else "not_sent",
        retry_after=1.0 if ended.retry_after is None else ended.retry_after,
        data=data,
    )


def first_leaf(error: BaseException) -> BaseException:
    """The first single exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _why(failed: BaseException) -> str:
    """One line, also of what the SDK's models say over many."""
    errors = getattr(failed, "errors", None)
    if callable(errors):
        places = (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in errors())
        return f"its answer to the handshake is none ({'; '.join(places)})"
    return str(failed) or type(failed).__name__


def _shown(text: str, clean: Callable[[str], str]) -> str:
    """A server's words, fit for a terminal."""
    text = clean(text)[:_LONGEST]
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
