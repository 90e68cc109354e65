"""The governed way of every call: who may call what, with which arguments, how often, and what is kept of it.

Example:
    >>> outcome = await run(call, Context(gate))  # doctest: +SKIP
"""

from conduit_daemon.pipeline.context import Context
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.question import Question
from conduit_daemon.pipeline.refusal import Refusal
from conduit_daemon.pipeline.remembered import Answer
from conduit_daemon.pipeline.run import run, start

__all__ = ["Answer", "Context", "Gate", "Question", "Refusal", "run", "start"]
