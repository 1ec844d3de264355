"""Docview XML: nodes as elements, their properties as attributes (Jackrabbit FileVault).

Prefixes are taken as they are written; a document with a DOCTYPE is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from packhorse.content.node import MAX_PATH_BYTES
from packhorse_services.content.filevault.names import from_element, to_element
from packhorse_services.content.filevault.values import JcrValue
from packhorse_services.content.transfer.sources import NotImportable, chunks_of

PRIMARY_TYPE = "jcr:primaryType"
_ROOT = "jcr:root"
_JCR = "http://www.jcp.org/jcr/1.0"
_NAMESPACES = {
    "jcr": _JCR,
    "nt": "http://www.jcp.org/jcr/nt/1.0",
    "mix": "http://www.jcp.org/jcr/mix/1.0",
    "rep": "internal",
    "sling": "http://sling.apache.org/jcr/sling/1.0",
    "oak": "http://jackrabbit.apache.org/oak/ns/1.0",
    "vlt": "http://www.day.com/jcr/vault/1.0",
    "cq": "http://www.day.com/jcr/cq/1.0",
    "crx": "http://www.day.com/crx/1.0",
    "dam": "http://www.day.com/dam/1.0",
    "granite": "http://www.adobe.com/jcr/granite/1.0",
    "dc": "http://purl.org/dc/elements/1.1/",
    "xmp": "http://ns.adobe.com/xap/1.0/",
    "xmpMM": "http://ns.adobe.com/xap/1.0/mm/",
    "xmpRights": "http://ns.adobe.com/xap/1.0/rights/",
    "tiff": "http://ns.adobe.com/tiff/1.0/",
    "exif": "http://ns.adobe.com/exif/1.0/",
    "pdf": "http://ns.adobe.com/pdf/1.3/",
    "photoshop": "http://ns.adobe.com/photoshop/1.0/",
    "Iptc4xmpCore": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
}
"""Of another prefix a namespace is made up, for the node does not say it."""

_MOST_DEPTH = 500
_MOST_NODES = 100_000
_LARGEST = 16 * 1024**2


@dataclass(slots=True)
class DocviewNode:
    """An element with a type; `below` has the names that lead to it from the first, or is empty."""

    below: str
    type: str
    properties: dict[str, JcrValue]
    children: list[str] = field(default_factory=list)
    """The names of all children in their order, those among them that stand elsewhere too."""


class _NoDocview(Exception):
    """The document's root says that it is another kind of XML."""


def read_docview(file: BinaryIO) -> list[DocviewNode] | None:
    """Return the nodes of a document, or None for a file that is none. Raises `NotImportable`."""
    reading = _Reading()
    try:
        for chunk in chunks_of(file):
            reading.take(chunk)
        reading.parser.Parse(b"", True)
    except _NoDocview:
        return None
    except expat.ExpatError as error:
        if not reading.is_docview:
            return None
        raise NotImportable(f"its XML is damaged: {error}") from error
    return reading.nodes


class _Reading:
    def __init__(self) -> None:
        self.nodes: list[DocviewNode] = []
        self.is_docview = False
        self._open: list[tuple[str, DocviewNode | None]] = []
        self._length = 0
        self.parser = expat.ParserCreate()
        self.parser.ordered_attributes = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = lambda _: self._open.pop()
        self.parser.StartDoctypeDeclHandler = self._end

    def take(self, chunk: bytes) -> None:
        """Read on. Raises `NotImportable` for a document that would take too much memory."""
        self._length += len(chunk)
        self.parser.Parse(chunk, False)
        if self._length > _LARGEST:
            if not self.is_docview:
                raise _NoDocview
            raise NotImportable(f"its XML has more than {_LARGEST} bytes")

    def _start(self, element: str, attributes: Sequence[str]) -> None:
        given = dict(zip(attributes[::2], attributes[1::2], strict=True))
        if not self._open:
            if element != _ROOT or given.get("xmlns:jcr") != _JCR:
                raise _NoDocview
            self.is_docview = True
        if len(self._open) == _MOST_DEPTH:
            raise NotImportable(f"its XML is deeper than {_MOST_DEPTH} elements")
        name = from_element(element)
        if self._open and (above := self._open[-1][1]):
            above.children.append(name)
        below = f"{self._open[-1][0]}/{name}" if self._open else ""
        if len(below) > MAX_PATH_BYTES:  # each that is open is kept
            raise NotImportable(f"its XML has a path of more than {MAX_PATH_BYTES} bytes")
        node = _node(below, given)
        if node:
            self.nodes.append(node)
        if len(self.nodes) > _MOST_NODES:
            raise NotImportable(f"its XML holds more than {_MOST_NODES} nodes")
        self._open.append((below, node))

    def _end(self, *_: Any) -> None:
        """Read nothing whose size its declarations say: entities, and defaults of attributes."""
        raise _NoDocview


def _node(below: str, attributes: Mapping[str, str]) -> DocviewNode | None:
    values = {
        from_element(name): JcrValue.parsed(text)
        for name, text in attributes.items()
        if name != "xmlns" and not name.startswith("xmlns:")
    }
    kind = values.pop(PRIMARY_TYPE, None)
    return DocviewNode(below, kind.values[0], values) if kind and kind.values else None


def docview(node: DocviewNode) -> Iterator[str]:
    """Yield the text of a document that holds a node, and its children's names where they count."""
    attributes = {
        PRIMARY_TYPE: node.type,
        **{name: value.formatted() for name, value in sorted(node.properties.items())},
    }
    elements = [to_element(name) for name in (*attributes, *node.children)]
    used = {name.partition(":")[0] for name in elements if ":" in name} | {"jcr"}
    said = " ".join(attributes.values())
    used |= {prefix for prefix in _NAMESPACES if f"{prefix}:" in said}
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<jcr:root'
    for prefix in sorted(used):
        uri = _NAMESPACES.get(prefix, f"http://packhorse.invalid/{prefix}")
        yield f" xmlns:{prefix}={_quoted(uri)}"
    for name, text in attributes.items():
        yield f"\n    {to_element(name)}={_quoted(text)}"
    if not node.children:
        yield "/>\n"
        return
    yield ">\n"
    yield from (f"    <{to_element(name)}/>\n" for name in node.children)
    yield "</jcr:root>\n"


def _quoted(text: str) -> str:
    for letter in (*map(chr, range(0x20)), "\x7f", "\ufffe", "\uffff"):
        if letter not in "\t\n\r":
            text = text.replace(letter, f"\\u{ord(letter):04x}")
    return quoteattr(text, {"\n": "&#xa;", "\r": "&#xd;", "\t": "&#x9;"})
