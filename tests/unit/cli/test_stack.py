"""The ports and names of a stack."""

import itertools
import random
import re
import socket
from pathlib import Path

import pytest

from packhorse.wire.topics import Topics
from packhorse_services.cli.client.failures import CommandFailed
from packhorse_services.cli.client.settings import port_range
from packhorse_services.cli.client.stack_options import StackOptions
from packhorse_services.cli.client.topic_options import TopicOptions
from packhorse_services.cli.stack import ports
from packhorse_services.cli.stack.layout import (
    PortTaken,
    choose_ports,
    connections,
    database_names,
    plan,
    subscriber_names,
)
from packhorse_services.cli.stack.ports import free_port, free_ports, is_free


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)


def test_a_port_is_given_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKHORSE_PORTS", "29000-29199")
    first, second = free_ports(60), free_ports(60)
    assert (len(first), len(second)) == (60, 60)
    assert not {*first} & {*second}, "whom the first are for may not listen yet"
    assert {*first, *second} <= {*range(29_000, 29_200)}
    with pytest.raises(CommandFailed, match=r"PACKHORSE_PORTS: only \d+ of 100 ports are free"):
        free_ports(100)


def test_the_last_port_is_given_again_where_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKHORSE_PORTS", "29200-29399")
    given = ports._given
    free = next(port for port in range(29_200, 29_400) if is_free(port) and port not in given)
    assert free_port(free) == free
    assert free_port(free) != free, "it was given to another program"
    assert free_port(1) in range(29_200, 29_400)
    ports._given.remove(free)
    with socket.create_server(("127.0.0.1", free)):
        assert free_port(free) != free


@pytest.mark.parametrize("text", ["", "1", "a-b", "2-1", "0-9", "1-65536", "1-2-3"])
def test_what_is_no_range_of_ports_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PACKHORSE_PORTS", text)
    with pytest.raises(CommandFailed, match="no range such as"):
        free_ports(1)


def _free_in_a_row(count: int) -> int:
    """Return the first of `count` neighbours that nobody listens on or was given."""
    candidates = port_range()[: -count + 1]
    return next(
        first
        for first in random.sample(candidates, len(candidates))
        if all(is_free(one) and one not in ports._given for one in range(first, first + count))
    )


def test_the_server_takes_the_connections_of_all_subscribers(tmp_path: Path) -> None:
    assert connections(StackOptions(data=tmp_path)) == 400
    assert connections(StackOptions(data=tmp_path, subscribers=100)) == 2720


def test_ports_follow_the_first(tmp_path: Path) -> None:
    first = _free_in_a_row(6)
    options = StackOptions(data=tmp_path, port=first, subscribers=0)
    assert choose_ports(options) == [*range(first, first + 6)]
    assert len(choose_ports(StackOptions(data=tmp_path, port=0, subscribers=4))) == 14


def test_what_the_guide_lets_join_gets_ports_that_the_stack_leaves_free(tmp_path: Path) -> None:
    options = StackOptions(data=tmp_path)
    databases = dict.fromkeys(database_names(options), "postgresql://nobody@127.0.0.1/none")
    ports = itertools.count(options.port)
    programs = plan(options, databases, list(itertools.islice(ports, 100)))
    stacks_own = {int(program.environment["PACKHORSE_PORT"]) for program in programs}
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "stack.md").read_text()
    joined = {int(port) for port in re.findall(r"PACKHORSE_PORT=(\d+)", guide)}
    assert joined
    assert joined & stacks_own == set()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} is in use; choose another"):
            choose_ports(StackOptions(data=tmp_path, port=port))


def test_a_subscriber_is_named_by_its_number() -> None:
    assert subscriber_names(3) == ["sub1", "sub2", "sub3"]


def test_each_program_is_given_its_own_database(tmp_path: Path) -> None:
    options = StackOptions(data=tmp_path, subscribers=2, journal="kafka://broker:9092")
    databases = {name: f"postgresql://{name}" for name in database_names(options)}
    programs = {one.name: one for one in plan(options, databases, [*range(1, 11)])}
    console = programs.pop("console")
    assert not {name for name in console.environment if "DATABASE" in name or "JOURNAL" in name}
    assert console.environment["PACKHORSE_PUBLISHER_URLS"] == '{"main": "http://127.0.0.1:1"}'
    assert console.url == "http://127.0.0.1:10", "behind the others, whose ports stay as they are"
    assert {name: one.environment["PACKHORSE_DATABASE_URL"] for name, one in programs.items()} == {
        "publisher": "postgresql://author",
        "content": "postgresql://author",
        "cleanup": "postgresql://author",
        "sub1": "postgresql://sub1",
        "sub2": "postgresql://sub2",
        "topology": "postgresql://author",
        "jobs": "postgresql://author",
        "topology-sub1": "postgresql://sub1",
        "topology-sub2": "postgresql://sub2",
    }
    assert {one.environment["PACKHORSE_JOURNAL_URL"] for one in programs.values()} == {
        "kafka://broker:9092"
    }
    assert programs["sub2"].url == "http://127.0.0.1:5"
    assert programs["topology"].url == "http://127.0.0.1:6"
    assert programs["jobs"].url == "http://127.0.0.1:7"
    assert {one.environment["PACKHORSE_INSTANCE_ID"] for one in programs.values()} == set(programs)
    assert all(one.environment["PACKHORSE_ENDPOINT"] == one.url for one in programs.values())
    assert programs["topology-sub2"].environment["PACKHORSE_CONNECTOR_URLS"] == "http://127.0.0.1:6"
    key = "PACKHORSE_CONNECTOR_SHARED_KEY_FILE"
    keys = {name: one.environment[key] for name, one in programs.items() if key in one.environment}
    assert set(keys) == {"topology", "topology-sub1", "topology-sub2"}
    assert set(keys.values()) == {str(tmp_path / "connector.key")}


def test_all_programs_of_a_stack_are_told_the_same_topics(tmp_path: Path) -> None:
    options = StackOptions(
        data=tmp_path, port=0, subscribers=1, topic_prefix="a", topic_event="told"
    )
    topics = options.topics()
    databases = dict.fromkeys(database_names(options), "postgresql://x")
    programs = plan(options, databases, choose_ports(options))
    with_a_journal = [one for one in programs if "PACKHORSE_JOURNAL_URL" in one.environment]
    assert {one.name for one in programs} - {one.name for one in with_a_journal} == {"console"}
    for program in with_a_journal:
        told = {
            part: program.environment[f"PACKHORSE_TOPIC_{part.upper()}"]
            for part in topics.by_part()
        }
        assert Topics(**told) == topics
    assert TopicOptions().topics(program.environment) == topics
    assert TopicOptions(topic_prefix="b").topics(program.environment) == Topics.named("b", {})
    with pytest.raises(CommandFailed, match="the name of two topics: status and event"):
        TopicOptions(topic_event="x", topic_status="x").topics()
