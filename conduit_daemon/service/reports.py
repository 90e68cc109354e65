"""The supervision library's reports, as events of the daemon."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

from conduit_daemon.errors import DaemonError
from conduit_daemon.telemetry.events import Event, EventBus
from supervisors import ActorError, Crashed, ExitReason, Shutdown
from supervisors import events as reports

__all__ = ["LastCrash", "report_to"]

_CRASHED = "crashed: "
_MESSAGE_SHOWN = 60


@final
class LastCrash:
    """What crashed last, for the words with which the daemon gives up.

    Args:
        bus: Whose events tell of it.

    Attributes:
        text: Which child, and of what; empty where nothing has crashed.
    """

    def __init__(self, bus: EventBus) -> None:
        self.text = ""
        bus.attach(self._take, types=["supervisor.child_terminated", "supervisor.start_failed"], level="warning")

    def why(self, error: Exception) -> dict[str, str]:
        """Why the daemon ends by `error`, as the fields of an event."""
        if isinstance(error, DaemonError):
            return {"reason": str(error)}
        if isinstance(error, ActorError):
            crashed = f" The last crash was of {self.text}" if self.text else ""
            return {"reason": f"The supervision tree gave up: {error}{crashed}"}
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        return {
            "reason": f"A defect of the daemon: {type(first).__name__}: {first}",
            "traceback": "".join(traceback.format_exception(error)),
        }

    def _take(self, event: Event) -> None:
        reason = str(event.fields.get("reason", ""))
        if event.type == "supervisor.start_failed" or reason.startswith(_CRASHED):
            self.text = f"{event.fields.get('child')}: {reason.removeprefix(_CRASHED)}"


@contextmanager
def report_to(bus: EventBus) -> Iterator[None]:
    """Makes every report of the tree an event of `bus`, until left."""
    token = reports.attach(lambda report: _tell(bus, report))
    try:
        yield
    finally:
        reports.detach(token)


def _tell(bus: EventBus, report: reports.Event) -> None:
    match report:
        case reports.ChildStarted():
            bus.emit("supervisor.child_started", level="debug", child=report.id, supervisor=_name(report))
        case reports.ChildTerminated(reason=reason):
            bus.emit(
                "supervisor.child_terminated", level="warning", child=report.id, supervisor=_name(report),
                reason=_words(reason),
            )  # fmt: skip
        case reports.ChildRestarting():
            bus.emit(
                "supervisor.child_restarted", level="warning", child=report.id, supervisor=_name(report),
                delay=round(report.delay, 3), attempt=report.attempt,
            )  # fmt: skip
        case reports.StartFailed(cause=cause):
            bus.emit(
                "supervisor.start_failed", level="error", child=report.id, supervisor=_name(report), reason=repr(cause)
            )
        case reports.ShutdownError(reason=reason):
            bus.emit(
                "supervisor.child_terminated", level="error", child=report.id, supervisor=_name(report),
                reason=f"It did not end in order: {_words(reason)}.",
            )  # fmt: skip
        case reports.ChildUnresponsive():
            bus.emit("supervisor.child_unresponsive", level="error", child=report.id, supervisor=_name(report))
        case reports.SupervisorShutdown(reason=reason):
            bus.emit("supervisor.shutdown", level="error", supervisor=report.name, reason=_words(reason))
        case reports.ActorCrashed(error=error):
            bus.emit(
                "supervisor.actor_crashed",
                level="error",
                actor=report.name or repr(report.ref),
                error=f"{type(error).__name__}: {error}",
                # A message may hold a call's arguments, which are nobody's business in a log: its type says enough.
                last_message=type(report.last_message).__name__[:_MESSAGE_SHOWN],
                mailbox_len=report.mailbox_len,
                traceback="".join(traceback.format_exception(error)),
            )
        case reports.UnexpectedMessage():
            bus.emit(
                "internal.error", level="warning", actor=report.name,
                message=f"An unexpected message was dropped: {type(report.message).__name__}.",
            )  # fmt: skip


def _name(report: Any) -> str:
    return report.supervisor.name or repr(report.supervisor)


def _words(reason: ExitReason) -> str:
    match reason:
        case Crashed(error):
            return f"{_CRASHED}{type(error).__name__}: {error}"
        case Shutdown(detail) if detail is not None:
            return f"shutdown: {detail}"
        case _:
            return type(reason).__name__.lower()
