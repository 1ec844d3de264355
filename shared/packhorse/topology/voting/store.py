"""What the voting needs of its store, which may show changes late and out of order."""

from typing import Protocol

from packhorse.topology.voting.records import Heartbeat, StoreView, Vote, Voting


class VotingStore(Protocol):
    """One instance's session with the store; what it writes it sees itself at once.

    Of two writes to the same thing the later one wins in the end, for everybody. Every step may
    raise `StoreUnavailable`: then it may have happened or not. Used by one thread, but for `wake`.
    """

    def start_time(self) -> int:
        """Return milliseconds by the store's clock, higher than any that it returned before."""
        ...

    def beat(self, heartbeat: Heartbeat, over: str = "") -> bool:
        """Write the heartbeat of an instance; false when another process writes under its id.

        That is when the last visible one has a runtime id that is neither its own nor `over`.
        """
        ...

    def read(self) -> StoreView:
        """Return everything that is visible now."""
        ...

    def propose(self, voting: Voting) -> None:
        """Begin a voting, with the initiator's yes."""
        ...

    def vote(self, vote: Vote) -> None:
        """Cast a vote; only the first of a member counts, and none without the voting."""
        ...

    def withdraw(self, voting_id: str) -> None:
        """Remove a voting, if it is still there: from then on it can't be promoted."""
        ...

    def promote(self, voting: Voting) -> bool:
        """Make a voting the established view, and what it replaces the previous one.

        False, and nothing happens, unless the voting is still there, has a yes of every member,
        and what it replaces is still established, as far as is visible here.
        """
        ...

    def leave(self, instance_id: str, runtime_id: str) -> None:
        """Remove the heartbeat of an instance if this process wrote it."""
        ...

    def wait(self, seconds: float) -> bool:
        """Return true after a hint that something has changed, or `wake`; false after `seconds`."""
        ...

    def wake(self) -> None:
        """Let `wait` return, now or the next time; may be called by any thread."""
        ...

    def close(self) -> None:
        """Give the session back."""
        ...
