"""`packhorse events` and `packhorse get distributions` as a user types them."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.command_line import packhorse
from tests.harness.imported import COMMAND_LINE
from tests.harness.live_site import Site, live_site
from tests.harness.postgres import Databases
from tests.harness.processes import Process, Program
from tests.harness.waiting import eventually


@pytest.fixture
def site(databases: Databases) -> Iterator[Site]:
    with live_site(databases) as site:
        yield site


def reaching(site: Site, program: Program, *arguments: str) -> tuple[str, ...]:
    return ("--server", program.url, "--token-file", str(site.programs.tokens), *arguments)


def test_events_are_followed_over_kill_9_without_a_loss(site: Site, tmp_path: Path) -> None:
    program = site.publisher()
    arguments = reaching(site, program, "events", "-o", "json", "--types", "package")
    command = (sys.executable, "-m", COMMAND_LINE, *arguments)
    follower = Process("events", command, {}, tmp_path)
    follower.start()

    def reported() -> list[str]:
        return [json.loads(line)["data"]["package_id"] for line in follower.lines()]

    expected: list[str] = []

    def all_reported() -> bool:
        return reported()[-1:] == expected[-1:]

    try:
        eventually(lambda: streams(site, program) == 1, what=follower.said())
        for _ in range(2):
            expected += [site.distribute(program, path) for path in ("/a", "/b")]
            eventually(all_reported, what=follower.said())
            program.kill()
            program.start()
            program.ready()
            expected += [site.distribute(program, path) for path in ("/a", "/b")]
        eventually(all_reported, timeout=180, what=follower.said())
        assert reported() == expected
    finally:
        follower.kill()


def streams(site: Site, program: Program) -> float:
    text = site.ask(program, "/metrics").text
    found = re.search(r"^packhorse_publisher_event_streams (\S+)", text, re.MULTILINE)
    assert found
    return float(found[1])


def test_following_ends_after_the_given_seconds_and_says_what_is_wrong(
    site: Site, tmp_path: Path
) -> None:
    program = site.publisher()
    site.announce("sub", -1)
    eventually(lambda: site.ask(program, "/subscribers").json()["subscribers"])
    arguments = reaching(site, program, "events", "--types", "subscriber")
    command = (sys.executable, "-m", COMMAND_LINE, *arguments)
    follower = Process("subscriber-events", command, {}, tmp_path)
    follower.start()
    try:
        eventually(lambda: "sub is" in follower.output.read_text(), what=follower.said())
    finally:
        follower.kill()
    packhorse(*arguments, "--seconds", "1")
    wrong = packhorse(*reaching(site, program, "events", "--types", "nonsense"), check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "query/types" in wrong.stderr
    nobody = packhorse("--server", "http://127.0.0.1:1", "events", check=False)
    assert nobody.returncode == 1


def test_distributions_are_found_by_path(site: Site) -> None:
    program = site.publisher()
    ids = [site.distribute(program, path) for path in ("/a", "/b", "/a")]
    shown = packhorse(
        *reaching(site, program, "get", "distributions", "--path-prefix", "/a", "-o", "name")
    )
    assert shown.stdout.split() == [ids[2], ids[0]]
    limited = packhorse(
        *reaching(site, program, "get", "distributions", "--limit", "1", "-o", "json")
    )
    assert [one["id"] for one in json.loads(limited.stdout)["distributions"]] == [ids[2]]
