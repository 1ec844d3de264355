"""The ports and names of a stack."""

import socket
from pathlib import Path

import pytest

from packhorse_services.cli.ports import free_port, free_ports, is_free
from packhorse_services.cli.stack import (
    PortTaken,
    StackOptions,
    choose_ports,
    database_names,
    plan,
    subscriber_names,
)


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)


def test_ports_follow_the_first(tmp_path: Path) -> None:
    first = free_port()
    options = StackOptions(tmp_path, port=first, subscribers=0)
    assert choose_ports(options)[0] == first
    assert len(choose_ports(StackOptions(tmp_path, port=0, subscribers=4))) == 13


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} is in use; choose another"):
            choose_ports(StackOptions(tmp_path, port=port))


def test_a_subscriber_is_named_by_its_number() -> None:
    assert subscriber_names(3) == ["sub1", "sub2", "sub3"]


def test_each_program_is_told_its_own_database(tmp_path: Path) -> None:
    options = StackOptions(tmp_path, subscribers=2, journal="kafka://broker:9092")
    databases = {name: f"postgresql://{name}" for name in database_names(options)}
    programs = {one.name: one for one in plan(options, databases, [*range(1, 10)])}
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
