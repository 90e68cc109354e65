"""What a supervisor is told of its children, and what of that cannot work."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from supervisors._errors import InvalidChildSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AutoShutdown", "Backoff", "ChildSpec", "Restart", "Strategy", "check_limit", "check_options", "check_spec"]

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]

_WORKER_SHUTDOWN = 5.0


class Backoff(msgspec.Struct, frozen=True):
    """How long a child that keeps failing waits before it is started again.

    The n-th wait is drawn from ``d * (1 - jitter)`` to ``d`` seconds, where ``d`` is ``initial * factor ** (n - 1)``,
    at most ``maximum``. A child that ran for ``reset_after`` seconds begins anew. Such a child never counts toward its
    supervisor's intensity. OTP has nothing of the kind.

    Raises:
        InvalidChildSpec: A number that makes no sense.
    """

    initial: float = 0.5
    factor: float = 2.0
    maximum: float = 60.0
    jitter: float = 0.5
    reset_after: float = 60.0

    def __post_init__(self) -> None:
        for problem, wrong in (
            ("initial must be a number of seconds, at least 0", not (isfinite(self.initial) and self.initial >= 0)),
            ("factor must be at least 1", not (isfinite(self.factor) and self.factor >= 1)),
            ("maximum must not be less than initial", not self.maximum >= self.initial),
            ("jitter must be from 0 to 1", not 0 <= self.jitter <= 1),
            ("reset_after must be at least 0", not self.reset_after >= 0),
        ):
            if wrong:
                raise InvalidChildSpec(f"Backoff: {problem}: {self}.")

    def delay(self, attempt: int) -> float:
        """Draws the wait before the given attempt, in seconds; the first is 1."""
        full = self.initial
        for _ in range(attempt - 1):
            if full >= self.maximum or full == 0 or self.factor == 1:
                break
            full *= self.factor
        full = min(full, self.maximum)
        return random.uniform(full * (1 - self.jitter), full)  # noqa: S311


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How to start one child, and what to do when it ends.

    It is OTP's child specification: https://www.erlang.org/doc/apps/stdlib/supervisor.html#t:child_spec/0.

    Attributes:
        id: What the supervisor calls it; unique there.
        start: Makes a fresh Actor, supervisor, or plain async function (which then is the child) for each life.
        restart: ``permanent`` always, ``transient`` after an abnormal end, ``temporary`` never.
        shutdown: So many seconds to end in good order, then it is killed; ``"brutal_kill"`` at once; ``"infinity"``
            never. None: 5 seconds, and infinity for a supervisor.
        type: What ``which_children`` and ``count_children`` call it.
        significant: Whether its end may shut its supervisor down, as ``auto_shutdown`` says.
        backoff: Wait before each restart, and stay out of the supervisor's intensity.

    Raises:
        InvalidChildSpec: What can be seen to be wrong by itself.

    Example:
        >>> spec = ChildSpec(id="counter", start=Counter, restart="transient")
    """

    id: str
    start: Callable[[], Any]
    restart: Restart = "permanent"
    shutdown: float | Literal["brutal_kill", "infinity"] | None = None
    type: Literal["worker", "supervisor"] = "worker"
    significant: bool = False
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InvalidChildSpec(f"A child's id is a string that is not empty, not {self.id!r}.")
        if not callable(self.start):
            raise InvalidChildSpec(
                f"Child {self.id!r}: start must be callable and make the child; it is {self.start!r}."
            )
        _check_choice(f"Child {self.id!r}: restart", self.restart, get_args(Restart))
        _check_choice(f"Child {self.id!r}: type", self.type, ("worker", "supervisor"))
        shutdown = self.shutdown
        if isinstance(shutdown, str):
            _check_choice(f"Child {self.id!r}: shutdown", shutdown, ("brutal_kill", "infinity"))
        elif shutdown is not None and not shutdown >= 0:
            raise InvalidChildSpec(
                f"Child {self.id!r}: shutdown is a number of seconds, at least 0; it is {shutdown!r}."
            )
        if self.significant and self.restart == "permanent":
            raise InvalidChildSpec(
                f"Child {self.id!r}: a permanent child never ends for good, so it cannot be significant; "
                "make it transient or temporary."
            )
        if self.backoff is not None and not isinstance(self.backoff, Backoff):
            raise InvalidChildSpec(f"Child {self.id!r}: backoff is a Backoff or None; it is {self.backoff!r}.")

    def seconds_to_stop(self, supervises: bool) -> float | Literal["brutal_kill", "infinity"]:
        """The time to end, defaults resolved; ``supervises`` says what ``start`` made."""
        if self.shutdown is not None:
            return self.shutdown
        return "infinity" if supervises or self.type == "supervisor" else _WORKER_SHUTDOWN


def check_spec(spec: ChildSpec, *, strategy: Strategy, auto_shutdown: AutoShutdown) -> None:
    """Checks a specification against the supervisor it is for.

    Raises:
        InvalidChildSpec: It does not fit there.
    """
    if not isinstance(spec, ChildSpec):
        raise InvalidChildSpec(f"Children are described by ChildSpec(...), not by {spec!r}.")
    if spec.significant and auto_shutdown == "never":
        raise InvalidChildSpec(
            f"Child {spec.id!r} is significant, and auto_shutdown of its supervisor is 'never'; change one of them."
        )
    if spec.backoff is not None and strategy != "one_for_one":
        raise InvalidChildSpec(
            f"Child {spec.id!r} has a backoff, which {strategy} cannot honour: its siblings would have to wait too. "
            "Use one_for_one, or a supervisor of its own."
        )


def check_options(
    children: Sequence[ChildSpec],
    *,
    strategy: Strategy,
    max_restarts: int,
    max_seconds: float,
    auto_shutdown: AutoShutdown,
) -> None:
    """Checks a supervisor's options and all its children.

    Raises:
        InvalidChildSpec: Something of it cannot work.
    """
    _check_choice("strategy", strategy, get_args(Strategy))
    _check_choice("auto_shutdown", auto_shutdown, get_args(AutoShutdown))
    if isinstance(max_restarts, bool) or not isinstance(max_restarts, int) or max_restarts < 0:
        raise InvalidChildSpec(f"max_restarts is a whole number, at least 0; it is {max_restarts!r}.")
    if not max_seconds > 0:
        raise InvalidChildSpec(f"max_seconds is a number of seconds greater than 0; it is {max_seconds!r}.")
    seen = set()
    for spec in children:
        check_spec(spec, strategy=strategy, auto_shutdown=auto_shutdown)
        if spec.id in seen:
            raise InvalidChildSpec(f"Two children have the id {spec.id!r}; ids are unique within a supervisor.")
        seen.add(spec.id)


def check_limit(max_children: int | None) -> None:
    """Checks how many children there may be.

    Raises:
        InvalidChildSpec: It is neither None nor a whole number, at least 0.
    """
    wrong = isinstance(max_children, bool) or (max_children is not None and not isinstance(max_children, int))
    if wrong or (max_children is not None and max_children < 0):
        raise InvalidChildSpec(f"max_children is None or a whole number, at least 0; it is {max_children!r}.")


def _check_choice(what: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidChildSpec(f"{what} is one of {', '.join(map(repr, choices))}; it is {value!r}.")
