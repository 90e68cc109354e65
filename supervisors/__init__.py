"""Actors and supervisors on trio, as Erlang and Elixir have them.

An ``Actor`` is a state and a mailbox; a ``Supervisor`` starts actors, restarts what crashes and stops them in order;
``open_supervisor`` runs a tree inside an ``async with``. The README teaches it; ``supervisors.sys`` looks into a
running tree; ``supervisors.events`` tells what happens in it. These two are not in ``__all__``: a star import must not
hide Python's own ``sys``.
"""

from supervisors import events as events
from supervisors import sys as sys
from supervisors._actor import Actor
from supervisors._administration import (
    count_children,
    delete_child,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from supervisors._aside import TaskHandle
from supervisors._child import ChildCounts, ChildInfo
from supervisors._current import self_ref
from supervisors._dynamic import DynamicSupervisor
from supervisors._errors import (
    ActorError,
    AlreadyPresent,
    AlreadyRegistered,
    AlreadyStarted,
    CallingSelf,
    CallTimeout,
    InvalidChildSpec,
    MailboxFull,
    MaxChildren,
    NoProcess,
    NotFound,
    NotInActor,
    Restarting,
    Running,
    ServerExit,
    StartError,
    SupervisorExit,
    TaskExit,
)
from supervisors._links import demonitor, exit, link, monitor, unlink
from supervisors._mailbox import From
from supervisors._messages import Call, Cast, Down, Exit, TimedOut
from supervisors._messaging import call, cast, cast_nowait, reply, send, send_after, stop
from supervisors._reasons import Crashed, ExitReason, Killed, NoProc, Normal, Shutdown
from supervisors._ref import MonitorRef, Ref
from supervisors._returns import Continue, Ignore, NoReply, Reply, Stop, Timeout
from supervisors._root import open_supervisor
from supervisors._specs import AutoShutdown, Backoff, ChildSpec, Restart, Strategy
from supervisors._supervisor import Supervisor
from supervisors._target import whereis
from supervisors._tasks import Task, TaskSupervisor, async_nolink, async_task, start_task
from supervisors._timers import TimerRef

__all__ = [
    "Actor",
    "ActorError",
    "AlreadyPresent",
    "AlreadyRegistered",
    "AlreadyStarted",
    "AutoShutdown",
    "Backoff",
    "Call",
    "CallTimeout",
    "CallingSelf",
    "Cast",
    "ChildCounts",
    "ChildInfo",
    "ChildSpec",
    "Continue",
    "Crashed",
    "Down",
    "DynamicSupervisor",
    "Exit",
    "ExitReason",
    "From",
    "Ignore",
    "InvalidChildSpec",
    "Killed",
    "MailboxFull",
    "MaxChildren",
    "MonitorRef",
    "NoProc",
    "NoProcess",
    "NoReply",
    "Normal",
    "NotFound",
    "NotInActor",
    "Ref",
    "Reply",
    "Restart",
    "Restarting",
    "Running",
    "ServerExit",
    "Shutdown",
    "StartError",
    "Stop",
    "Strategy",
    "Supervisor",
    "SupervisorExit",
    "Task",
    "TaskExit",
    "TaskHandle",
    "TaskSupervisor",
    "TimedOut",
    "Timeout",
    "TimerRef",
    "async_nolink",
    "async_task",
    "call",
    "cast",
    "cast_nowait",
    "count_children",
    "delete_child",
    "demonitor",
    "exit",
    "link",
    "monitor",
    "open_supervisor",
    "reply",
    "restart_child",
    "self_ref",
    "send",
    "send_after",
    "start_child",
    "start_task",
    "stop",
    "terminate_child",
    "unlink",
    "whereis",
    "which_children",
]
