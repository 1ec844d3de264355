"""`META-INF/vault/filter.xml`: which paths a package is about."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from packhorse.content.node import InvalidPath, check_path, is_within
from packhorse_services.content.transfer.sources import NotImportable

PATH = "META-INF/vault/filter.xml"
_LARGEST = 1024**2
_MOST_RULES, _LONGEST_RULE = 10_000, 1_000


@dataclass(slots=True)
class _Rules:
    """Patterns in their order: the last that matches a whole path decides."""

    patterns: list[tuple[re.Pattern[str], bool]] = field(default_factory=list)

    def admit(self, path: str) -> bool:
        admitted = not (self.patterns and self.patterns[0][1])
        for pattern, includes in self.patterns:
            if pattern.fullmatch(path):
                admitted = includes
        return admitted


@dataclass(slots=True)
class FilterRoot:
    """A root with its rules; `keeps` what is there already, as the mode `merge` says."""

    path: str
    keeps: bool = False
    nodes: _Rules = field(default_factory=_Rules)
    properties: _Rules = field(default_factory=_Rules)


class WorkspaceFilter:
    """What a package holds content for."""

    def __init__(self, roots: Sequence[FilterRoot]) -> None:
        self.roots = roots

    def root_of(self, path: str) -> FilterRoot | None:
        """Return the first root that covers a path, or None."""
        covering = (
            one for one in self.roots if is_within(path, one.path) and one.nodes.admit(path)
        )
        return next(covering, None)


def read_filter(file: BinaryIO) -> WorkspaceFilter:
    """Return what the file says. Raises `NotImportable` for what is no filter."""
    reading = _Reading()
    try:
        if len(text := file.read(_LARGEST + 1)) > _LARGEST:
            raise NotImportable(f"{PATH} has more than {_LARGEST} bytes")
        reading.parser.Parse(text, True)
    except expat.ExpatError as error:
        raise NotImportable(f"{PATH} is no XML: {error}") from error
    if not reading.roots:
        raise NotImportable(f"{PATH} names no root, so the package is about nothing")
    return WorkspaceFilter(reading.roots)


class _Reading:
    def __init__(self) -> None:
        self.roots: list[FilterRoot] = []
        self._count = 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _refuse(self, *_: object) -> None:
        raise NotImportable(f"{PATH} has a DOCTYPE, which is not read")

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > _MOST_RULES:
            raise NotImportable(f"{PATH} has more than {_MOST_RULES} elements")
        if element == "filter":
            try:
                root = check_path(attributes.get("root", ""))
            except InvalidPath as error:
                raise NotImportable(f"a root of {PATH} is no path: {error}") from error
            mode = attributes.get("mode", "replace")
            self.roots.append(FilterRoot(root, keeps=mode.startswith("merge")))
        elif element in ("include", "exclude") and self.roots:
            is_about_properties = attributes.get("matchProperties") == "true"
            rules = self.roots[-1].properties if is_about_properties else self.roots[-1].nodes
            text = attributes.get("pattern", "")
            if len(text) > _LONGEST_RULE:
                raise NotImportable(f"a pattern of {PATH} has more than {_LONGEST_RULE} characters")
            try:
                rules.patterns.append((re.compile(text), element == "include"))
            except (re.error, ValueError, OverflowError, RecursionError) as error:
                raise NotImportable(f"{PATH}: {text[:200]!r} is no pattern: {error}") from error


def filter_of(root: str) -> str:
    """Return the text of a filter with one root."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<workspaceFilter version="1.0">\n'
        f"    <filter root={quoteattr(root)}/>\n</workspaceFilter>\n"
    )
