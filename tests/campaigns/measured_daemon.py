"""Runs the daemon with a meter on its event loop; each time that the loop stands still is a line in $CONDUIT_STALLS.

    python measured_daemon.py run --config FILE

A stall is the time from one wait for I/O to the next in which tasks ran, less what the kernel let other processes
have of it: on a busy machine that is no fault of the daemon's. The number of trio's tasks, as of the last second,
stands in the same place with ``.tasks`` behind it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import trio

from conduit_daemon import app, config

NOTED = 0.02


class StallMeter(trio.abc.Instrument):
    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._tasks = file.with_name(f"{file.name}.tasks")
        self._counted_at = 0.0
        self._schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._began = time.perf_counter()
        self._waited = self._run_queue()
        self._step = 0.0
        self._longest = (0.0, "")
        self._where: list[str] = []
        self._main = threading.get_ident()
        self.running = True
        self._collecting = 0.0
        gc.callbacks.append(self._collect)
        threading.Thread(target=self._look, daemon=True).start()

    def _run_queue(self) -> float:
        """Seconds for which this thread could have run and did not."""
        return int(os.pread(self._schedule, 100, 0).split()[1]) / 1e9

    def before_run(self) -> None:
        self.after_io_wait(0)

    def after_io_wait(self, timeout: float) -> None:
        self._began, self._waited = time.perf_counter(), self._run_queue()
        self._longest, self._where, self.running = (0.0, ""), [], True

    def _collect(self, phase: str, info: dict[str, int]) -> None:
        """Notes how long the garbage collector, which stops everything, was at it."""
        if phase == "start":
            self._collecting = time.thread_time()
            return
        took = time.thread_time() - self._collecting
        if took > NOTED:  # whichever thread it is in, and whether or not the loop was waiting
            self._note({"ms": round(took * 1000, 1), "task": f"garbage collection {info['generation']}"})

    def _note(self, found: dict[str, Any]) -> None:
        self._file.write(json.dumps(found) + "\n")

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step = time.perf_counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = time.perf_counter() - self._step
        if took > self._longest[0]:
            self._longest = (took, task.name)

    def before_io_wait(self, timeout: float) -> None:
        self.running = False
        now = time.perf_counter()
        if now > self._counted_at + 1:
            self._counted_at = now
            self._tasks.write_text(str(trio.lowlevel.current_statistics().tasks_living))
        wall = now - self._began
        if wall < NOTED:
            return
        stall = wall - (self._run_queue() - self._waited)
        if stall >= NOTED:
            self._note(
                {
                    "ms": round(stall * 1000, 1),
                    "wall_ms": round(wall * 1000, 1),
                    "task": self._longest[1],
                    "step_ms": round(self._longest[0] * 1000, 1),
                    "where": self._where,
                }
            )

    def _look(self) -> None:
        """Sees what a long step is at; the switch to this thread costs the loop nothing that counts."""
        while True:
            time.sleep(NOTED)
            if self.running and time.perf_counter() - self._began > NOTED:
                stack = traceback.extract_stack(sys._current_frames()[self._main])
                self._where.append(" < ".join(f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in stack[-4:]))


def main() -> int:
    path = Path(sys.argv[sys.argv.index("--config") + 1])
    meter = StallMeter(Path(os.environ["CONDUIT_STALLS"]))
    loaded = config.load(path)
    trio.run = partial(trio.run, instruments=[meter])
    return app.run(loaded, os.environ)


if __name__ == "__main__":
    sys.exit(main())
