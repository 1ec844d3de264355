"""A content package as nodes: what each of its files stands for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from packhorse.content.node import ROOT, InvalidPath, check_path
from packhorse.content.tree import FOLDER
from packhorse_services.content.filevault.docview import DocviewNode, read_docview
from packhorse_services.content.filevault.names import from_file, to_file
from packhorse_services.content.filevault.values import HINT
from packhorse_services.content.filevault.workspace_filter import PATH, FilterRoot, read_filter
from packhorse_services.content.transfer.folder_import import DATA, FILE
from packhorse_services.content.transfer.sources import (
    UNREADABLE,
    ContentSource,
    NotImportable,
    SourceEntry,
    media_type_of,
)

CHILD_ORDER = ":childOrder"
"""The property with the names of a node's children, where they have an order."""
CONTENT = ".content.xml"
ROOT_FOLDER = "jcr_root"
_BELOW = f"{ROOT_FOLDER}/"
NATIVE = {"nt:file": FILE, "nt:folder": FOLDER}
"""What packhorse has types of its own for."""

BESIDE, BINARY, XML = ".dir", ".binary", ".xml"
"""How folders and files end that are none of the tree's own, and files that may describe nodes."""

_NOT_CONTENT = {
    "META-INF/vault/nodetypes.cnd": "node types are not defined here: a node may have any type",
    "META-INF/vault/privileges.xml": "privileges are no content",
    "META-INF/vault/hooks/": "hooks of installations are not run",
}
_UNCOVERED = "filter.xml does not cover it"
_POLICIES = ("ACL", "Policy")
_ACCESS = "access control is no content"


@dataclass(slots=True)
class PackagedNode:
    """A node of a package; `properties` and `contents` are by their names."""

    path: str
    type: str
    properties: dict[str, Any] = field(default_factory=dict)
    contents: dict[str, SourceEntry] = field(default_factory=dict)
    keeps: bool = False
    """Whether one that is there already stays as it is."""

    def json(self) -> str:
        """Return the properties as a node has them."""
        return orjson.dumps(self.properties).decode()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of a package that has no place in a tree, or, as a `problem`, can't be read."""

    name: str
    reason: str
    problem: bool = False


class ContentPackage:
    """The nodes of a package below `at`; the names of all its files are in memory."""

    def __init__(self, source: ContentSource, at: str = "/") -> None:
        """Read the names. Raises `NotImportable` for what is no content package."""
        self._base = at.rstrip("/")
        self._entries = {entry.name: entry for entry in source.entries()}
        self._given: set[str] = set()
        found = self._entries.get(PATH)
        if found is None or found.open is None:
            raise NotImportable(f"it is no content package: it has no {PATH}")
        with found.open() as file:
            self._filter = read_filter(file)

    def nodes(self) -> Iterator[PackagedNode | LeftOut]:
        """Yield what the package holds, parents first."""
        for name in sorted(self._entries):
            entry = self._entries[name]
            if name.startswith(_BELOW):
                try:
                    yield from self._standing_for(entry, name.removeprefix(_BELOW))
                except (*UNREADABLE, InvalidPath) as error:
                    yield LeftOut(name, str(error), problem=True)
            else:
                reasons = [why for one, why in _NOT_CONTENT.items() if name.startswith(one)]
                yield from (LeftOut(name, why) for why in reasons if entry.open)

    def _standing_for(self, entry: SourceEntry, name: str) -> Iterator[PackagedNode | LeftOut]:
        """Yield what a file or folder below `jcr_root` stands for."""
        if entry.problem:
            raise NotImportable(entry.problem)
        if entry.skipped:
            yield LeftOut(entry.name, entry.skipped)
        elif entry.open is None:
            if not self._is_known(name):
                yield from self._covered(PackagedNode(self._path(name), FOLDER))
        elif name.rpartition("/")[2] == CONTENT:
            nodes = _read(entry)
            if nodes is None:
                raise NotImportable("it is no docview XML, or has a DOCTYPE; nothing else is read")
            yield from self._placed(nodes, name.rpartition("/")[0])
        elif not name.endswith(BINARY) and f"{entry.name}{BESIDE}/{CONTENT}" not in self._entries:
            yield from self._of_file(entry, name)

    def _of_file(self, entry: SourceEntry, name: str) -> Iterator[PackagedNode | LeftOut]:
        nodes = _read(entry) if name.endswith(XML) else None
        if nodes is not None:
            yield from self._placed(nodes, name.removesuffix(XML))
        else:
            yield from self._covered(PackagedNode(self._path(name), FILE, {}, {DATA: entry}))

    def _is_known(self, folder: str) -> bool:
        """Return whether a folder of the package is said by something else than by itself."""
        full = _BELOW + folder
        return not folder or self._is_beside(full) or f"{full}/{CONTENT}" in self._entries

    def _placed(self, nodes: list[DocviewNode], name: str) -> Iterator[PackagedNode | LeftOut]:
        """Yield a document's nodes, of which the first is that of a file or folder."""
        full, path = _BELOW + name, self._path(name)
        file = self._entries[full.removesuffix(BESIDE)] if self._is_beside(full) else None
        for node in nodes:
            if node.type.startswith("rep:"):
                if node.type.endswith(_POLICIES):
                    yield LeftOut(path + node.below, _ACCESS)
                continue
            made = PackagedNode(
                check_path(path.rstrip("/") + node.below or ROOT),
                NATIVE.get(node.type, node.type),
            )
            if file and not node.below:
                made.contents[DATA] = file
            folder = "/".join((full.rstrip("/"), *map(to_file, node.below.split("/")[1:])))
            for problem in self._filled(made, node, folder, has_data=file is not None):
                yield LeftOut(made.path, problem)
            yield from self._covered(made)

    def _filled(
        self, made: PackagedNode, node: DocviewNode, folder: str, *, has_data: bool
    ) -> Iterator[str]:
        """Give a node its properties and binaries; yield what has no place."""
        for name, value in node.properties.items():
            if value.type not in ("Binary", "BinaryRef"):
                made.properties[name], hint = value.as_json()
                if hint:
                    made.properties[name + HINT] = hint
            elif (found := self._entries.get(f"{folder}/{to_file(name)}{BINARY}")) and found.open:
                made.contents[name] = found
            elif not (has_data and name == "jcr:data"):
                yield f"its binary {name!r} is not in the package"
        if len(node.children) > 1:
            made.properties[CHILD_ORDER] = node.children

    def _covered(self, node: PackagedNode) -> Iterator[PackagedNode | LeftOut]:
        """Yield a node that the filter covers, with the properties that it covers."""
        inner = node.path.removeprefix(self._base) or ROOT
        root = self._filter.root_of(inner)
        if root is None:
            if node.contents or node.properties:
                yield LeftOut(node.path, _UNCOVERED)
            return
        if root.properties.patterns:
            node.properties = _admitted(node.properties, root, inner)
        node.keeps = root.keeps
        if node.type != FOLDER or node.path not in self._given:
            self._given.add(node.path)
            yield node

    def _path(self, name: str) -> str:
        """Return the path that the names of folders and files below `jcr_root` lead to."""
        names, full = [], ROOT_FOLDER
        for one in filter(None, name.split("/")):
            full = f"{full}/{one}"
            names.append(from_file(one.removesuffix(BESIDE) if self._is_beside(full) else one))
        return check_path("/".join((self._base, *names)) or ROOT)

    def _is_beside(self, folder: str) -> bool:
        """Return whether a folder holds what a file beside it can't: its properties, its nodes."""
        file = self._entries.get(folder.removesuffix(BESIDE)) if folder.endswith(BESIDE) else None
        return file is not None and file.open is not None


def _read(entry: SourceEntry) -> list[DocviewNode] | None:
    assert entry.open is not None  # noqa: S101 - it is a file
    with entry.open() as file:
        return read_docview(file)


def _admitted(properties: Mapping[str, Any], root: FilterRoot, path: str) -> dict[str, Any]:
    return {
        name: value
        for name, value in properties.items()
        if root.properties.admit(f"{path}/{name.removesuffix(HINT)}") or name == CHILD_ORDER
    }


def media_type(node: PackagedNode, name: str) -> str:
    """Return the media type of a node's binary: by what JCR says of it, or by a file's name."""
    said = node.properties.get("jcr:mimeType", "")
    if name != DATA and isinstance(said, str) and said:
        return said
    return media_type_of(node.path)
