"""The library's public names as Markdown, from their signatures and docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

_OPERATION = re.compile(r"Operation\[(.+)\]$")
_LONGEST_LINE = 88
_OF_A_BLOCK = contextmanager(iter).__code__
"""The code of every function that is decorated as a context manager."""


def library_sections(module: Any) -> str:
    """Return a section for each name in a module's `__all__`, with what belongs to it."""
    lines: list[str] = []
    said: dict[Any, str] = {}
    for name in sorted(module.__all__, key=lambda name: name.startswith("Async")):
        lines += ["", f"## {name}", "", *_class_lines(name, getattr(module, name), said)]
    return "\n".join(lines) + "\n"


def _class_lines(name: str, cls: type, said: dict[Any, str]) -> Iterator[str]:
    bases = [base.__name__ for base in cls.__bases__ if base is not object]
    if issubclass(cls, Enum) or cls.__init__ is Exception.__init__:
        yield from _code(f"class {name}({', '.join(bases)})")
    else:
        yield from _code(_signature(name, cls))
    yield from markdown(cls.__doc__)
    for attribute, text in attribute_texts(cls).items():
        yield f"- `{attribute}`" + (f": {' '.join(text.split())}" if text else "")
    yield ""
    repeated = []
    for member, value in _members(cls):
        original = inspect.unwrap(value.fget if isinstance(value, property) else value)
        if original in said:
            repeated.append((member, said[original]))
            continue
        said[original] = name
        yield from (f"### {name}.{member}", "", *_member_lines(member, value))
    if repeated:
        first = repeated[0][1]
        calls = ", ".join(f"`{member}`" for member, _ in repeated)
        yield from (f"With the meaning and the arguments that they have in `{first}`: {calls}.", "")


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties of a class and of its bases in this library."""
    seen = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("packhorse") or base.__module__.startswith("typing"):
            continue
        for name, value in vars(base).items():
            callable_ = inspect.isfunction(value) or isinstance(value, property)
            if name.startswith("_") or name in seen or not callable_:
                continue
            seen.add(name)
            yield name, value


def _member_lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        returned = inspect.signature(value.fget).return_annotation if value.fget else ""
        yield from _code(f"{name}: {_annotation(returned)}")
    else:
        yield from _code(_signature(name, value))
    yield from markdown(inspect.getdoc(value))


def _signature(name: str, called: Callable[..., Any]) -> str:
    """Return a call as code, over several lines where it is long."""
    signature = inspect.signature(called)
    shown = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    returned = _annotation(signature.return_annotation)
    if getattr(called, "__code__", None) is _OF_A_BLOCK:
        returned = f"with … as {returned.partition('[')[2][:-1]}"
    end = f" -> {returned}" if returned and not inspect.isclass(called) else ""
    line = f"{name}({', '.join(_separated(shown))}){end}"
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in _separated(shown)) + f"){end}"


def _separated(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Yield the parameters as they are written, with `*` before those given by name only."""
    starred = False
    for one in parameters:
        starred |= one.kind is inspect.Parameter.VAR_POSITIONAL
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        mark = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        typed = "" if one.annotation is one.empty else f": {_annotation(one.annotation)}"
        default = "" if one.default is one.empty else f" = {one.default!r}"
        yield f"{mark}{one.name}{typed}{default if typed else default.replace(' ', '')}"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = text.replace("'", "")
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)
    text = re.sub(r"^Following$", "Iterator[StreamEvent]", text)
    return _OPERATION.sub(r"\1", text)


def _code(text: str) -> Iterator[str]:
    yield from ("```python", text, "```", "")


def markdown(docstring: str | None) -> Iterator[str]:
    """Yield a docstring as Markdown: sections such as `Raises:` become lists."""
    text = inspect.cleandoc(docstring or "")
    inside = False
    for line in text.splitlines():
        if re.fullmatch(r"(Raises|Returns|Args|Yields):", line):
            inside = True
            yield from ("", f"{line.rstrip(':')}:", "")
        elif inside and line.startswith("    ") and not line.startswith("     "):
            yield f"- {line.strip()}"
        elif inside and line and not line.startswith(" "):
            inside = False
            yield from ("", line)
        else:
            yield line
    yield ""


def attribute_texts(cls: type) -> dict[str, str]:
    """Return the public attributes of a dataclass or an enum, with the strings below them."""
    found: dict[str, str] = {}
    if not (issubclass(cls, Enum) or hasattr(cls, "__dataclass_fields__")):
        return found
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    name = ""
    for node in (one for part in tree.body if isinstance(part, ast.ClassDef) for one in part.body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name):
            name = "" if target.id.startswith("_") else target.id
            found.update({name: ""} if name else {})
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found[name] = str(node.value.value)
            name = ""
        else:
            name = ""
    return found
