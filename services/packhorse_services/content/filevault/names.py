"""Names of JCR nodes, as file names and as names of XML elements (Jackrabbit FileVault, ISO 9075).

A file is named `_jcr_content` for `jcr:content`, and `__x_y` for `_x_y`; what a file system may not
take is written as `%3f`. In XML, what no name may hold is written as `_x0020_`.
"""

import re
from urllib.parse import unquote

from packhorse_services.content.transfer.sources import NotImportable

_UNSAFE = re.compile(r'[%\\/:*?"<>|\x00-\x1f]')
_ESCAPED = re.compile(r"_x([0-9a-fA-F]{4})_")
_START = re.compile(r"[A-Za-z_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff]")
_NAME = re.compile(
    r"[-.\w:\u00b7\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u037d\u037f-\u1fff]"
    r"|[\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd]"
)


def from_file(name: str) -> str:
    """Return the node's name that a file's or folder's name says."""
    name = unquote(name)
    if name.startswith("__"):
        return name[1:]
    prefix, _, local = name.removeprefix("_").partition("_")
    return f"{prefix}:{local}" if name.startswith("_") and prefix and local else name


def to_file(name: str) -> str:
    """Return the file name that says a node's name."""
    prefix, _, local = name.partition(":")
    if prefix and local:
        return f"_{_quoted(prefix)}_{_quoted(local)}"
    return ("_" if name.startswith("_") and "_" in name[1:] else "") + _quoted(name)


def _quoted(name: str) -> str:
    return _UNSAFE.sub(lambda one: f"%{ord(one[0]):02x}", name)


def from_element(name: str) -> str:
    """Return the node's or property's name that an element's or attribute's name says.

    Raises `NotImportable` for half a character.
    """
    units = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)
    try:
        return units.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise NotImportable(f"the name {name!r} holds half a character") from None


def to_element(name: str) -> str:
    """Return the name of XML that says a node's or property's name."""
    prefix, colon, local = name.rpartition(":")
    return _element(prefix) + colon + _element(local)


def _element(name: str) -> str:
    out = []
    for at, letter in enumerate(name):
        allowed = (_START if at == 0 else _NAME).fullmatch(letter) and letter != ":"
        plain = allowed and not _ESCAPED.match(name, at) and letter.isascii()
        out.append(letter if plain else _hex(letter))
    return "".join(out)


def _hex(letter: str) -> str:
    units = letter.encode("utf-16-be")
    return "".join(f"_x{units[at : at + 2].hex()}_" for at in range(0, len(units), 2))
