"""What a listener hears when it is slower than the events."""

from hypothesis import given
from hypothesis import strategies as st

from packhorse.topology.events import EventFlow, EventKind, TopologyEvent
from packhorse.topology.listeners import ViewMailbox
from tests.harness.topology.observations import seen
from tests.harness.topology.scripted import ME

INIT, CHANGING, CHANGED, PROPERTIES = EventKind


def drained(mailbox: ViewMailbox) -> list[TopologyEvent]:
    taken = []
    while (event := mailbox.take()) is not None:
        taken.append(event)
    return taken


def events_of(*revisions: str, load: str = "") -> list[TopologyEvent]:
    flow, reported, now = EventFlow(), [], 0.0
    for revision in revisions:
        now += 10
        reported += flow.observe(seen(ME, f"a{revision}", revision=revision), (), now)
        reported += flow.elapsed(now + 5)
    return reported


def test_a_slow_listener_hears_changing_and_the_newest_view() -> None:
    mailbox = ViewMailbox()
    first, *rest = events_of(*map(str, range(1, 1_000)))
    mailbox.post(first)
    assert drained(mailbox) == [first]
    for event in rest:
        mailbox.post(event)
    changing, changed = drained(mailbox)
    assert changing == TopologyEvent(CHANGING, first.new, None)
    assert changed == TopologyEvent(CHANGED, first.new, rest[-1].new)


def test_a_listener_that_heard_nothing_yet_begins_with_init() -> None:
    mailbox = ViewMailbox()
    *events, last = events_of("1", "2", "3")
    for event in events:
        mailbox.post(event)
    assert drained(mailbox) == []  # the last of them is CHANGING
    mailbox.post(last)
    assert drained(mailbox) == [TopologyEvent(INIT, None, last.new)]


def test_a_view_that_ended_before_it_was_heard_is_not_heard() -> None:
    mailbox = ViewMailbox()
    init, changing, changed, again = events_of("1", "2", "3")[:4]
    mailbox.post(init)
    drained(mailbox)
    mailbox.post(changing)
    assert [event.kind for event in drained(mailbox)] == [CHANGING]
    mailbox.post(changed)
    mailbox.post(again)
    assert drained(mailbox) == []


STEPS = st.lists(st.sampled_from(["same", "load", "revision", "unconfirmed", "lost", "take"]))


@given(STEPS)
def test_whatever_is_posted_and_taken_when_the_order_of_kinds_holds(steps: list[str]) -> None:
    flow, mailbox, heard, now = EventFlow(), ViewMailbox(), list[TopologyEvent](), 0.0
    revision = load = 1
    for step in [*steps, "same", "same", "take", "take"]:
        now += 4
        revision += step in ("revision", "unconfirmed")
        load += step == "load"
        if step == "take":
            heard += [event] if (event := mailbox.take()) else []
            continue
        look = seen(
            ME,
            revision=str(revision),
            settled=step != "unconfirmed",
            properties={ME: {"load": str(load)}},
        )
        for event in flow.lose(now) if step == "lost" else flow.observe(look, (), now):
            mailbox.post(event)
    heard += drained(mailbox)
    check_kinds(heard)
    assert heard[-1].new == flow.view


def check_kinds(heard: list[TopologyEvent]) -> None:
    known = None
    changing = False
    for event in heard:
        if known is None:
            assert event.kind is INIT
        elif changing:
            assert event.kind is CHANGED
        else:
            assert event.kind in (CHANGING, PROPERTIES)
        assert event.old == known
        changing = event.kind is CHANGING
        known = event.new or known
