"""What the audit adds to a call: CPU of the governed pipeline with it on against the same with it off, in one run.

Run it by hand: ``python tests/benchmarks/bench_audit.py``. The server answers at once in this process and nothing is
logged, so that nothing but the audit differs: the row noted in the event loop, digested, written and committed by its
thread. Numbers are CPU microseconds a call of the whole process, and of the event loop's thread alone, medians over
rounds taken in turns.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_pipeline import CALLS, FAKE, RULES, alone
from in_process import governed

from conduit_daemon.config import Config, PolicyConfig, ServerConfig
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.masking import Masker

GOAL = 5.0
ROUNDS = 15


async def measured(gate: Gate, audit: Audit | None) -> tuple[float, float]:
    """CPU microseconds a call: of the process, and of the event loop's thread."""
    gate.recorder = audit
    began = time.thread_time()
    whole = await alone(gate, governed=True)
    return whole, (time.thread_time() - began) / CALLS * 1e6


async def main() -> None:
    bus = EventBus()
    config = Config(
        servers={"s": ServerConfig(command=sys.executable, args=(str(FAKE),))},
        policy=PolicyConfig(default="deny", rules=RULES),
    )
    with tempfile.TemporaryDirectory() as folder:
        audit = Audit(Path(folder), config.audit, bus, Masker())
        async with governed(config, bus, audit=audit) as gate:
            for recorder in (None, audit):  # warm
                await measured(gate, recorder)
            rounds = [(await measured(gate, None), await measured(gate, audit)) for _ in range(ROUNDS)]
            (row,) = await audit.query(limit=1)
            assert row.decision == "allow"
    added = sorted(on[0] - off[0] for off, on in rounds)
    middle, loop = statistics.median(added), statistics.median(on[1] - off[1] for off, on in rounds)
    off, on = (statistics.median(one[side][0] for one in rounds) for side in (0, 1))
    print(
        f"audit off {off:5.1f}  on {on:5.1f}  added {middle:5.1f} us a call "
        f"(rounds {added[0]:.1f} to {added[-1]:.1f}), {loop:.1f} of them in the event loop"
    )
    print(f"The goal is at most {GOAL:g} us.")
    sys.exit(0 if middle <= GOAL else 1)


if __name__ == "__main__":
    trio.run(main)
