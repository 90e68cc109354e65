"""What tests of the configuration share."""

import pytest

from conduit_daemon.config.unsupported import UNSUPPORTED


@pytest.fixture
def everything_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets keys through whose capability this version does not have, to test the rules about them."""
    for row in tuple(UNSUPPORTED):
        monkeypatch.delitem(UNSUPPORTED, row)
