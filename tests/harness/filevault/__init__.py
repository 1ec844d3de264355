"""Content packages: real ones from Maven, made ones, and a reader that knows nothing of ours."""

import re
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from tests.harness.client_tools import jars

_PREFIXES = {
    "http://www.jcp.org/jcr/1.0": "jcr:",
    "http://www.jcp.org/jcr/nt/1.0": "nt:",
    "http://sling.apache.org/jcr/sling/1.0": "sling:",
    "http://www.day.com/jcr/cq/1.0": "cq:",
    "http://www.day.com/dam/1.0": "dam:",
    "http://www.adobe.com/jcr/granite/1.0": "granite:",
    "http://purl.org/dc/elements/1.1/": "dc:",
    "http://jackrabbit.apache.org/oak/ns/1.0": "oak:",
    "http://www.day.com/crx/1.0": "crx:",
    "http://ns.adobe.com/tiff/1.0/": "tiff:",
    "http://ns.adobe.com/pdf/1.3/": "pdf:",
    "http://ns.adobe.com/xap/1.0/": "xmp:",
    "http://ns.adobe.com/xap/1.0/mm/": "xmpMM:",
    "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/": "Iptc4xmpCore:",
}
FILTER = "META-INF/vault/filter.xml"
_TYPE = "{http://www.jcp.org/jcr/1.0}primaryType"


def real_packages() -> list[Path]:
    """Return two packages that Adobe publishes: components, and a site with pages and pictures."""
    folder = jars("content-packages", Path(__file__).parent / "pom.xml")
    return sorted(folder.glob("*.zip"))


def package(path: Path, files: Mapping[str, str | bytes], roots: str = "/content") -> Path:
    """Write a package with these files below `jcr_root` that is about these roots."""
    filters = "".join(f'<filter root="{root}"/>' for root in roots.split())
    with zipfile.ZipFile(path, "w") as archive:
        given = {FILTER: f"<workspaceFilter>{filters}</workspaceFilter>", **files}
        for name, content in given.items():
            archive.writestr(name if name.startswith("META-INF") else f"jcr_root/{name}", content)
    return path


def described(path: Path) -> dict[str, dict[str, str]]:
    """Return the attributes of all elements with a type, by folder names and element names."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            folder, _, last = name.removeprefix("jcr_root").rpartition("/")
            if name.startswith("jcr_root/") and last.endswith(".xml"):
                root = ElementTree.fromstring(archive.read(name))
                at = folder if last == ".content.xml" else f"{folder}/{last.removesuffix('.xml')}"
                found |= _described(root, at.replace(".dir/", "/").removesuffix(".dir"))
    return {
        path: one for path, one in found.items() if not one["jcr:primaryType"].startswith("rep")
    }


def _described(element: ElementTree.Element, path: str) -> dict[str, dict[str, str]]:
    own = {}
    if _TYPE in element.attrib:
        # Whether what needs none is escaped differs between versions of FileVault.
        given = {_prefixed(name): text for name, text in element.attrib.items()}
        own[path] = {name: text.replace("\\]", "]") for name, text in given.items()}
    for child in element:
        name = _prefixed(child.tag)
        prefix, colon, local = name.partition(":")
        own |= _described(child, f"{path}/{f'_{prefix}_{local}' if colon else name}")
    return own


@cache
def _prefixed(name: str) -> str:
    for uri, prefix in _PREFIXES.items():
        name = name.replace(f"{{{uri}}}", prefix)
    units = re.sub("_x([0-9a-f]{4})_", lambda found: chr(int(found[1], 16)), name)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


def files(path: Path) -> dict[str, bytes]:
    """Return the bytes of all that is no description, by name."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("jcr_root/")]
        found = {name: archive.read(name) for name in names if not name.endswith("/")}
    return {name: content for name, content in found.items() if b"<jcr:root" not in content}
