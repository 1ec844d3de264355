"""What tests of the stores need that stand still between two statements."""

import pytest

from packhorse.topology import leader


@pytest.fixture
def paused_takeovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a take-over last: nobody waits for one."""
    monkeypatch.setattr(leader, "_PAUSE", "2min")
