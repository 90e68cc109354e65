"""What a command has begun is known to who clears it up, whenever a signal comes."""

import os
import signal

import pytest

from conduit_daemon.cli.interruption import ended_in_order, undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_for_the_end_of_what_is_not_to_be_disturbed(number):
    before, made = signal.getsignal(number), []
    with pytest.raises(KeyboardInterrupt), ended_in_order(), undisturbed():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        made.append("a folder")

    assert made == ["a folder"]
    assert signal.getsignal(number) is before


def test_nothing_changes_where_no_signal_comes():
    before = signal.getsignal(signal.SIGINT)
    with undisturbed():
        pass
    assert signal.getsignal(signal.SIGINT) is before
