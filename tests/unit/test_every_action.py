"""Every action, through all that knows it: publisher, queue, subscriber, pipeline, clients."""

from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.content.node import ROOT, Node
from packhorse.messaging.api import Record
from packhorse.packages.body import pack
from packhorse.packages.effects import Replacement, SubtreeRemoval, effects
from packhorse.wire import actions
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse.wire.package_codec import ACTION_NUMBERS, encode_package
from packhorse_services.cli.distribute.command import ActionName
from packhorse_services.pipeline.history.beginning import replaces_all
from packhorse_services.pipeline.measures.hourly import COUNTED_ACTIONS
from packhorse_services.pipeline.storage import schemas
from packhorse_services.publisher.distributions.schemas import DistributeBody
from packhorse_services.publisher.publish.overlap import Footprint
from packhorse_services.publisher.queues.cache.filling import rows_of
from packhorse_services.subscriber.importing.path_locks import path_locks

_NODES = [Node("/single", "page"), Node("/deep", "page"), Node("/deep/below", "page")]


def _entry(action: Action, deep: str = "/deep") -> PackageEntry:
    return PackageEntry("p1", "main", action, paths=("/single",), deep_paths=(deep,))


def _package(action: Action, folder: Path) -> PackageMessage:
    body = None
    if actions.exports(action):
        body = pack(iter(_NODES), "p1", open_blobs(str(folder))).body
    return PackageMessage(_entry(action), body)


@pytest.mark.parametrize("action", Action)
def test_r6_what_an_action_writes_is_what_overlaps_and_what_is_locked(
    action: Action, tmp_path: Path
) -> None:
    package = _package(action, tmp_path)
    done = list(effects(package, open_blobs(str(tmp_path))))
    written = {one.path for one in done if isinstance(one, Node | SubtreeRemoval)}
    written |= {one.part.top for one in done if isinstance(one, Replacement)}
    nodes, subtrees = actions.touched(package.entry)
    assert written == {*nodes, *subtrees}
    for path in ("/single", "/deep/below"):
        other = Footprint(PackageEntry("p2", "main", Action.ADD, paths=(path,)))
        assert Footprint(package.entry).overlaps(other) is bool(written), path
    assert bool(path_locks([package])) is bool(written)


@pytest.mark.parametrize("action", Action)
def test_r15_queues_show_every_action_but_probes(action: Action, tmp_path: Path) -> None:
    encoded = encode_package(_package(action, tmp_path))
    record = Record("topic", 0, 7, 0, None, encoded.headers, encoded.value)
    assert len(rows_of([record], b"main")) == (not actions.is_probe(action))


@pytest.mark.parametrize("action", Action)
def test_the_pipeline_knows_what_an_action_replaces_and_counts_it(
    action: Action, tmp_path: Path
) -> None:
    package = PackageMessage(_entry(action, ROOT), _package(action, tmp_path).body)
    replaces = actions.exports(action)  # no subscriber takes a DELETE of the root
    assert replaces_all(encode_package(package).headers) is replaces
    counted = [column for column, one in COUNTED_ACTIONS.items() if one is action]
    assert len(counted) == 1
    assert counted[0] in {field.name for field in schemas.PUBLISHING}


@pytest.mark.parametrize("action", Action)
def test_clients_can_ask_for_every_action(action: Action) -> None:
    assert DistributeBody(action=action.value, paths=["/single"]).action == action.value
    assert action.value.lower() in set(ActionName)
    assert action in ACTION_NUMBERS
