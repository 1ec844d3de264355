"""The product: a real subscriber process on a backlog."""

import json
from collections.abc import Callable
from pathlib import Path

from packhorse.content.node import parent_of
from packhorse.db.connect import connect
from packhorse.jobs.content_changes.watches import ContentWatch, add_watch
from packhorse.packages.path_filter import PathFilter
from tests.bench.importing.material import Material
from tests.bench.importing.measuring import Cost, Looker, Watch
from tests.harness.flame_graph import flame_graph
from tests.harness.processes import running_programs

_RULES = 100


def product(
    made: Material,
    journal: str,
    *,
    watched: bool = False,
    rules: Callable[[Material], dict[str, str]] | None = None,
    profile: Path | None = None,
) -> Cost:
    """Import everything with one subscriber; its start, the first tenth, is left out.

    With `rules`, settings of its filter, it takes all pages. With `profile` a flame graph is
    written there.
    """
    url = made.databases.new("product")
    if watched:
        with connect(url, "bench") as connection:
            add_watch(connection, ContentWatch("bench"))
    prefix = made.topics.package.removesuffix("_package")
    settings = {"topic_prefix": prefix, "blobs_url": made.blobs}
    with running_programs(made.journals[journal], **settings) as programs, Looker(url) as looker:
        own_settings = rules(made) if rules else {}
        subscriber = programs.subscriber("bench", url, **own_settings)
        mapping = json.loads(own_settings.get("map_paths", "{}"))
        at = PathFilter(map_paths=tuple(mapping.items())).own
        subscriber.start()
        skipped, first = made.mark(0.1)
        looker.wait_for(at(first), lambda: subscriber.running)
        watch = Watch(made.databases.server, made.broker.pid, [subscriber.pid])
        own = looker.cpu_s()
        count, last = made.mark(1.0)
        with flame_graph(subscriber.pid, profile):
            looker.wait_for(at(last), lambda: subscriber.running)
        cost = watch.cost(count - skipped, looker.cpu_s() - own)
        subscriber.stop()
    if rules is not mapped:
        made.check(url, len(made.packages))
    return cost


def filtered(made: Material) -> dict[str, str]:
    """Return rules that lie as deep as the pages do: folders of theirs, and what is not there."""
    folders = _folders(made)[: _RULES // 2]
    excluded = (f"{folder}/none" for folder in folders)
    return {"include": ",".join(["/", *folders[1:]]), "exclude": ",".join(excluded)}


def mapped(made: Material) -> dict[str, str]:
    """Return folders of the pages that change their places with one another."""
    folders = _folders(made)[:_RULES]
    return {"map_paths": json.dumps(dict(zip(folders, [*folders[1:], folders[0]], strict=True)))}


def stripped(_made: Material) -> dict[str, str]:
    """Return names of properties that no page has."""
    return {"exclude_properties": ",".join(f"cq:name{number}" for number in range(_RULES))}


def _folders(made: Material) -> list[str]:
    return list({parent_of(pages[0].path): None for pages in made.packages})
