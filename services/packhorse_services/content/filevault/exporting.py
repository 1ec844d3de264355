"""A part of the tree into a content package that FileVault and `PackageImport` read."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from xml.sax.saxutils import escape

from packhorse.content import tree
from packhorse.content.node import ROOT, Binary, Node, ancestors_of, check_path
from packhorse_services.content.filevault.docview import DocviewNode, docview
from packhorse_services.content.filevault.names import from_file, to_file
from packhorse_services.content.filevault.package import (
    BESIDE,
    BINARY,
    CHILD_ORDER,
    CONTENT,
    NATIVE,
    ROOT_FOLDER,
    XML,
)
from packhorse_services.content.filevault.values import HINT, JcrValue, NoValue
from packhorse_services.content.filevault.workspace_filter import PATH, filter_of
from packhorse_services.content.transfer.counting import (
    ImportCounts,
    TransferCounter,
    TransferWatcher,
)
from packhorse_services.content.transfer.folder_export import UNWRITABLE, ExportTree
from packhorse_services.content.transfer.folder_import import DATA, FILE
from packhorse_services.content.transfer.refusals import NothingThere
from packhorse_services.content.transfer.targets import ContentTarget

_JCR_TYPES = {own: jcr for jcr, own in NATIVE.items()}


class PackageExport:
    """One export, of which `watcher` is told as it goes on.

    Each node is a folder with a `.content.xml`, or a file; what JCR has no form for is reported,
    and counts as skipped.
    """

    def __init__(self, origin: ExportTree, target: ContentTarget, watcher: TransferWatcher) -> None:
        self._origin, self._target, self._counter = origin, target, TransferCounter(watcher)
        self._folders: set[Sequence[str]] = set()
        self._files: set[str] = set()
        self._left_out: set[str] = set()

    def run(self, path: str) -> ImportCounts:
        """Export the subtree of `path`. Raises `NothingThere`, and what origin and target raise."""
        base = check_path(path)
        with self._origin.nodes(base) as nodes:
            for node in nodes:
                if self._counter.is_empty:
                    self._begin(base)
                self._take(node)
                self._counter.report()
        if self._counter.is_empty:
            raise NothingThere(f"there is nothing at {path!r}")
        return self._counter.counts

    def _begin(self, base: str) -> None:
        """Write what says which path the package is about, and which name it has."""
        name = base.rpartition("/")[2] or "root"
        self._folder(())
        self._text(tuple(PATH.split("/")), filter_of(base))
        properties = "".join(
            f'<entry key="{key}">{escape(value)}</entry>\n'
            for key, value in {"group": "packhorse", "name": name, "version": ""}.items()
        )
        self._text(
            (*PATH.split("/")[:-1], "properties.xml"),
            '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE properties SYSTEM '
            f'"http://java.sun.com/dtd/properties.dtd">\n<properties>\n{properties}</properties>\n',
        )

    def _take(self, node: Node) -> None:
        """Write a node, unless its name means something else in a package."""
        data = next((one for one in node.binaries if one.name == DATA), None)
        try:
            if reason := self._misread(node.path, data):
                self._left_out.add(node.path)
                self._counter.skip(node.path, reason)
                return
            self._write(node, data)
        except UNWRITABLE as error:
            self._counter.refuse(node.path, str(error))
        else:
            self._counter.counts.nodes += 1

    def _misread(self, path: str, data: Binary | None) -> str:
        """Say why who reads the package would take a node for something else, or nothing."""
        name = path.rpartition("/")[2]
        if any(above in self._left_out for above in ancestors_of(path)):
            return "what lies above it is left out"
        if from_file(to_file(name)) != name:
            return "its name has no form as a file name of FileVault"
        if name.endswith(BESIDE) and path.removesuffix(BESIDE) in self._files:
            return "what has this name is taken for a part of the file beside it"
        if data is None:
            return ""
        if name == CONTENT or (name.endswith(XML) and self._is_docview(data)):
            return "what the file holds is taken for the description of a node"
        return "the file is taken for a node's binary" if name.endswith(BINARY) else ""

    def _is_docview(self, data: Binary) -> bool:
        return b"<jcr:root" in next(self._origin.stream(data), b"")

    def _write(self, node: Node, data: Binary | None) -> None:
        """Write a file's bytes, and the `.content.xml` of what a file or folder does not say."""
        names = _names(node.path, self._files)
        given = json.loads(node.properties, parse_float=Decimal)
        binaries = {one.name: one for one in node.binaries}
        if data is not None and node.path != ROOT:
            self._files.add(node.path)
            self._binary(names, data)
            names = (*names[:-1], f"{names[-1]}{BESIDE}")
            binaries.pop(DATA)
            self._counter.counts.files += 1
        else:
            data = None
            self._folder(names)
        values = self._values(node.path, given)
        order = given.get(CHILD_ORDER)
        children = [one for one in order if isinstance(one, str)] if isinstance(order, list) else []
        plain = FILE if data else tree.FOLDER
        if not (values or binaries or children) and node.type == plain:
            return
        for name, binary in binaries.items():
            values[name] = JcrValue("Binary", ("",))
            self._binary((*names, f"{to_file(name)}{BINARY}"), binary)
        described = DocviewNode("", _JCR_TYPES.get(node.type, node.type), values, children)
        self._text((*names, CONTENT), "".join(docview(described)))

    def _values(self, path: str, given: Mapping[str, Any]) -> dict[str, JcrValue]:
        """Return what JCR has a form for; report the rest."""
        values = {}
        for name, value in given.items():
            if name == CHILD_ORDER or (name.endswith(HINT) and name.removesuffix(HINT) in given):
                continue
            try:
                values[name] = JcrValue.of_json(value, str(given.get(name + HINT, "")))
            except NoValue as error:
                self._counter.skip(path, f"its property {name!r}: {error}")
        return values

    def _binary(self, names: Sequence[str], binary: Binary) -> None:
        self._folder(names[:-1])
        self._target.file(names, binary.length, self._origin.stream(binary))
        self._counter.counts.bytes += binary.length

    def _text(self, names: Sequence[str], text: str) -> None:
        self._folder(names[:-1])
        content = text.encode()
        self._target.file(names, len(content), iter([content]))

    def _folder(self, names: Sequence[str]) -> None:
        """Make a folder, and those above it, once."""
        for depth in range(len(names) + 1):
            if (above := tuple(names[:depth])) not in self._folders:
                self._target.folder(above)
                self._folders.add(above)


def _names(path: str, files: set[str]) -> tuple[str, ...]:
    """Return the names on the way to a node; below a file they go through its `.dir`."""
    if path == ROOT:
        return (ROOT_FOLDER,)
    above = (
        to_file(one.rpartition("/")[2]) + (BESIDE if one in files else "")
        for one in ancestors_of(check_path(path))
    )
    return (ROOT_FOLDER, *above, to_file(path.rpartition("/")[2]))
