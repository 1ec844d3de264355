"""What the image ships: every distribution pinned, and under a licence that may be shipped."""

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.harness.deployment import ROOT

SHIPPED_EXTRAS = ("kafka", "embedded", "pipeline")
PERMITTED = re.compile(r"\b(MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|LGPL)\b")
REFUSED = re.compile(r"\b([AS]?GPL|SSPL|BUSL|Commons.Clause|Proprietary)\b", re.IGNORECASE)


def shipped() -> dict[str, Distribution]:
    """Return packhorse's dependencies and theirs, by name."""
    found: dict[str, Distribution] = {}
    waiting = list(requirements(distribution("packhorse"), SHIPPED_EXTRAS))
    while waiting:
        requirement = waiting.pop()
        dependency = distribution(requirement.name)
        waiting += requirements(dependency, tuple(requirement.extras), found)
        found[canonicalize_name(requirement.name)] = dependency
    return found


def requirements(
    dependent: Distribution, extras: tuple[str, ...], known: dict[str, Distribution] | None = None
) -> Iterator[Requirement]:
    for text in dependent.requires or ():
        requirement = Requirement(text)
        wanted = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        )
        if wanted and canonicalize_name(requirement.name) not in (known or {}):
            yield requirement


def stated_licence(dependency: Distribution) -> str:
    metadata = dependency.metadata
    classifiers = (c for c in metadata.get_all("Classifier") or () if c.startswith("License"))
    stated = (metadata.get("License-Expression") or "", (metadata.get("License") or "")[:200])
    return " ".join([*stated, *classifiers])


def test_every_shipped_distribution_may_be_shipped() -> None:
    licences = {name: stated_licence(dependency) for name, dependency in shipped().items()}
    assert len(licences) > 40, "the walk through the dependencies found too few"
    wrong = {n: t for n, t in licences.items() if REFUSED.search(t) or not PERMITTED.search(t)}
    assert not wrong


def test_every_shipped_distribution_is_pinned_and_nothing_names_a_host() -> None:
    pins = (ROOT / "constraints.txt").read_text().split()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", pin) for pin in pins)
    pinned = {canonicalize_name(pin.partition("==")[0]) for pin in pins}
    assert shipped().keys() <= pinned
