"""Free memory is given back: when something was done, and by what the C library has for it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from conduit_daemon.service import memory
from conduit_daemon.service.memory import give_back, trimmer


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux" or trimmer() is None, reason="the C library is not glibc")
def test_what_is_free_between_what_stays_is_given_back() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    pieces = [libc.malloc(ctypes.c_size_t(100_000)) for _ in range(600)]
    for piece in pieces:
        ctypes.memset(piece, 1, 100_000)
    for piece in pieces[:-1]:  # the last one stays, and keeps all below it from being given back
        libc.free(piece)
    before = resident()
    trim = trimmer()
    assert trim is not None
    trim(0)
    libc.free(pieces[-1])
    assert before - resident() > 30_000_000


async def test_only_where_something_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_EVERY", 0.01)
    done, trimmed = 0, []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_back, lambda: done, trimmed.append)
        await trio.sleep(0.1)
        assert trimmed == []
        for count in (1, 2, 3):
            done = count
            with trio.fail_after(5):
                while len(trimmed) < count:
                    await trio.sleep(0.01)
            await trio.sleep(0.1)
            assert trimmed == [0] * count, "once for all that was done"
        nursery.cancel_scope.cancel()


async def test_another_c_library_is_left_alone(autojump_clock: Any) -> None:
    with trio.move_on_after(1000) as scope:
        await give_back(lambda: 1, None)
    assert scope.cancelled_caught
