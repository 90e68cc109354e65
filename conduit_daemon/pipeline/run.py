"""The way in: a call is started, or run and waited for."""

from __future__ import annotations

from functools import partial

import trio

from conduit_daemon.clients.dispatcher import OnProgress
from conduit_daemon.model import Call, Outcome
from conduit_daemon.pipeline.context import Context
from conduit_daemon.pipeline.flight import Flight, OnOutcome
from conduit_daemon.telemetry.tracing import Ended

__all__ = ["Flight", "OnOutcome", "OnProgress", "run", "start"]


async def run(call: Call, context: Context, *, on_progress: OnProgress | None = None) -> Outcome:
    """Runs one call through every stage and returns what came of it.

    A cancelled caller cancels the call, at the server too.

    Args:
        call: What is called, by whom.
        context: The pipeline as the caller sees it.
        on_progress: Called with the raw params of each progress notification.

    Returns:
        Its outcome; a failure is an outcome too, nothing is raised for it.
    """
    done = trio.Event()
    outcomes: list[Outcome] = []

    def finished(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    flight = start(call, context, finished, on_progress=on_progress)
    try:
        await done.wait()
    except trio.Cancelled:
        flight.cancel()
        raise
    return outcomes[0]


def start(call: Call, context: Context, on_outcome: OnOutcome, *, on_progress: OnProgress | None = None) -> Flight:
    """Starts one call and returns; `on_outcome` is called when it has ended, possibly before this returns.

    Args:
        call: What is called, by whom.
        context: The pipeline as the caller sees it.
        on_outcome: Called exactly once. Must not raise.
        on_progress: Called with the raw params of each progress notification.
    """
    tracer = context.gate.tracer
    if tracer is not None:
        call, ended = tracer.begin(call)
        on_outcome = partial(_traced, on_outcome, ended)
    flight = Flight(call, context, on_outcome, on_progress)
    flight.take_off()
    return flight


def _traced(on_outcome: OnOutcome, ended: Ended, outcome: Outcome) -> None:
    try:
        on_outcome(outcome)  # first: whoever called waits for it
    finally:
        ended(outcome)
