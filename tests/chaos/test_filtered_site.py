"""A site for two subscribers that filter and map it as they like, killed while they import (R35).

`make test` takes 200 pages; TEST_FILTERED_PAGES=20000 is what `make chaos` does.
"""

import json
import os
import random
from typing import Any

import psycopg
import pytest

from packhorse.client.blocking import Client
from packhorse.content.tree import upsert
from packhorse.packages.path_filter import PathFilter
from tests.harness.fold import MERE_FOLDER, as_authored, filtered
from tests.harness.postgres import Databases
from tests.harness.realistic_pages import page
from tests.harness.site import Site, site
from tests.harness.subscriber import content_of

PAGES = int(os.environ.get("TEST_FILTERED_PAGES", "200"))
TOP = "/content/site"
PARTS = ("north", "south", "shared", "shared/drafts")
FILTERS = {
    "north": PathFilter(
        (f"{TOP}/north", f"{TOP}/shared"),
        (f"{TOP}/shared/drafts",),
        ((f"{TOP}/north", "/north"), (f"{TOP}/shared/5", f"{TOP}/north")),
        ("components", "last*"),
    ),
    "south": PathFilter(
        (),
        ("/moved", f"{TOP}/north", *(f"{TOP}/shared/{n}" for n in range(50))),
        ((f"{TOP}/south", "/moved/south"), (f"{TOP}/shared/drafts", f"{TOP}/south")),
        ("price",),
    ),
}
QUICK: dict[str, Any] = {"lease_s": 1, "announce_s": 1}
_BATCH = 500

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]


def _write(url: str, paths: list[str], seed: int) -> None:
    source = random.Random(seed)
    with psycopg.connect(url) as connection:
        for first in range(0, len(paths), _BATCH):
            upsert(connection, [page(path, source, 1_000) for path in paths[first:][:_BATCH]])


def _kill_while_it_imports(built: Site, name: str) -> None:
    program = built.subscribers[name]
    program.kill()
    program.start()
    program.ready()


def _is_equal(built: Site, name: str) -> None:
    """Compare as a user does, and node by node with what the author has."""
    path_filter = FILTERS[name]
    with Client(
        built.publisher.url,
        content=built.content.url,
        subscriber=built.subscribers[name].url,
        token=built.programs.token,
    ) as client:
        told = client.compare(TOP, name, wait=600)
    author, found = content_of(built.author_url), content_of(built.database_urls[name])
    taken, (mine, others) = filtered(author, path_filter), as_authored(found, path_filter)
    assert (told.differences, told.under_way) == ([], 0)
    assert PAGES // 5 < len(taken) < len(author)
    assert mine == taken
    assert all(node == MERE_FOLDER for node in others.values())


def test_r35_two_parts_of_a_site_are_equal_by_their_filters(databases: Databases) -> None:
    with site(databases, databases.new("journal")) as built:
        for name, own in FILTERS.items():
            named = {"include": ",".join(own.include), "exclude": ",".join(own.exclude)}
            named["map_paths"] = json.dumps(dict(own.map_paths))
            named["exclude_properties"] = ",".join(own.exclude_properties)
            built.subscriber(name, **named, **QUICK)
        built.start()
        paths = [f"{TOP}/{PARTS[n % 4]}/{n // 4 % 100}/{n}" for n in range(PAGES)]
        _write(built.author_url, paths, 1)
        accepted = built.distribute(deep=[TOP])
        for name in FILTERS:
            _kill_while_it_imports(built, name)
        changed = paths[-40:]
        _write(built.author_url, changed, 2)
        built.distribute(*changed)
        gone = [f"{TOP}/{part}/{number}" for part in PARTS for number in (3, 7)]
        for path in gone:
            built.remove(path)
        last = built.distribute(*gone, action="DELETE")
        _kill_while_it_imports(built, "south")
        for one in (accepted, last):
            built.everywhere(one)
        for name in FILTERS:
            _is_equal(built, name)
