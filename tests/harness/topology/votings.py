"""Heartbeats, votings and what an instance makes of them, for tests of single decisions."""

from collections.abc import Iterable, Mapping

from packhorse.topology.voting.decisions import VotingSituation
from packhorse.topology.voting.records import Heartbeat, Member, StoreView, Vote, Voting


def member(name: str, started_ms: int = 1, prefix: str = "1", run: int = 1) -> Member:
    """Return a stay of the instance `name`; `run` distinguishes its processes."""
    return Member(name, f"{name}{run}", prefix, started_ms)


A, B, C, D = (member(name, started) for started, name in enumerate("abcd", 1))


def heartbeat(of: Member, count: int = 1, acknowledged: str = "") -> Heartbeat:
    return Heartbeat(of, count, acknowledged, {})


def voting(id_: str, *members: Member, by: Member | None = None, replaces: str = "v0") -> Voting:
    """Return a voting of its first member unless it is said to be `by` another."""
    return Voting(id_, replaces, (by or members[0]).instance_id, frozenset(members))


def situation(
    me: Member,
    *,
    view: Voting | None = None,
    alive: Iterable[Member] = (),
    votings: Iterable[Voting] = (),
    yes: Mapping[str, str] | None = None,
    no: Mapping[str, str] | None = None,
    dead: Iterable[Member] = (),
    possible: Iterable[Member] = (),
    is_sure: bool = True,
    timed_out: Iterable[str] = (),
    heard: Mapping[str, frozenset[Member]] | None = None,
) -> VotingSituation:
    """Return what `me` knows; votes are given as voting id to the letters of those who cast them.

    Initiators have voted yes without being named.
    """
    begun = tuple(votings)
    cast = {Vote(one.id, one.initiator, True) for one in begun}
    for answer, ballots in ((True, yes or {}), (False, no or {})):
        cast |= {Vote(id_, name, answer) for id_, names in ballots.items() for name in names}
    living, maybe = frozenset(alive) | {me}, frozenset(possible)
    visible = living | maybe | frozenset(dead)
    return VotingSituation(
        me=me,
        snapshot=StoreView(
            cluster_id="cluster",
            heartbeats=tuple(heartbeat(one) for one in visible),
            votings=begun,
            votes=frozenset(cast),
            established=view,
        ),
        alive=living,
        possible=maybe,
        is_sure=is_sure,
        timed_out=frozenset(timed_out),
        heard_since=dict(heard or {}),
    )


def votes(decided: Iterable[Vote]) -> dict[str, bool]:
    """Return what was voted by voting id."""
    return {vote.voting_id: vote.yes for vote in decided}
