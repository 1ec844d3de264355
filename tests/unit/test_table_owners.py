"""Each table has one owner; whoever else wants it calls functions of the library."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.harness.schema import described

ROOT = Path(__file__).parents[2]
SHARED, SERVICES = "shared/packhorse", "services/packhorse_services"

OWNERS = {
    f"{SHARED}/content": "content.node",
    f"{SHARED}/messaging": "journal.appender identity partition record segment topic",
    f"{SHARED}/topology": "topology.announcement cluster duty established_view heartbeat instance"
    " last_start nonce previous_view vote voting",
    f"{SHARED}/jobs": "jobs.event event_cursor event_horizon finished job queue schedule"
    " content_watch statistics tick topic worker",
    f"{SHARED}/bookkeeping": "bookkeeping.audit known_subscriber",
    f"{SERVICES}/cleanup": "bookkeeping.cleanup cleanup_removal cleanup_run orphan",
    f"{SERVICES}/jobs": "jobs.request_key",
    f"{SERVICES}/publisher": "bookkeeping.command deduplication_snapshot idempotency_key outbox"
    " outcome producer queue_sample release slot stored_package topic_cursor",
    f"{SERVICES}/subscriber": "bookkeeping.applied_package applied_sequence attempt clear_command"
    " command_position command_status content_filter joined_snapshot lease position"
    " status status_mark subscription_control",
}
"""A folder, and the tables, all of one schema, that its modules may name."""

FUNCTIONS = {
    f"{SHARED}/bookkeeping/outbox_view.py": "bookkeeping.outbox slot",
    f"{SHARED}/bookkeeping/positions.py": "bookkeeping.content_filter joined_snapshot position"
    " status",
    f"{SHARED}/bookkeeping/stored_packages.py": "bookkeeping.outbox stored_package",
    f"{SERVICES}/content": "content.node",
}
"""What names tables of another owner: functions for other services, and the API of the nodes."""


def tables(names: str) -> set[str]:
    schema, _, rest = names.partition(".")
    return {f"{schema}.{table}" for table in rest.split()}


@cache
def all_tables() -> set[str]:
    return set(described().tables)


def of_schemas(text: str) -> set[str]:
    return set(re.findall(r"\b[a-z]+\.[a-z_]+\b", text)) & all_tables()


def named_in(source: str) -> set[str]:
    """The tables in the texts of a module that are no docstrings: its SQL names its schemas."""
    if not of_schemas(source):  # most modules: nothing has to be parsed
        return set()
    tree = ast.parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            if isinstance(text, str):
                found |= of_schemas(text)
    return found


@cache
def named() -> dict[str, set[str]]:
    """Every module of the product that names tables; the schema itself is none of them."""
    return {
        str(path.relative_to(ROOT)): found
        for folder in (SHARED, SERVICES)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "tables.py" and "migrations" not in path.parts
        if (found := named_in(path.read_text()))
    }


def allowed(module: str) -> Iterator[str]:
    for places in (OWNERS, FUNCTIONS):
        for place, names in places.items():
            if module == place or module.startswith(f"{place}/"):
                yield from tables(names)


def test_every_table_has_one_owner() -> None:
    owned = [table for names in OWNERS.values() for table in tables(names)]
    assert sorted(owned) == sorted(all_tables())


def test_nobody_names_a_table_of_another_owner() -> None:
    foreign = {
        module: wrong
        for module, found in named().items()
        if (wrong := found - set(allowed(module)))
    }
    assert not foreign, "use, or add, a function in the library (docs/architecture.md, Schemas)"


def test_who_may_name_a_table_does() -> None:
    # A segment's table has a name of its own, and the journal's readers build it.
    built = {"journal.record", "journal.appender"}
    for place, names in {**OWNERS, **FUNCTIONS}.items():
        inside = [found for module, found in named().items() if module.startswith(place)]
        assert tables(names) - built <= set().union(*inside), place


def test_a_foreign_table_would_be_seen() -> None:
    assert named_in('"""Of content.node."""\nQ = "SELECT * FROM bookkeeping.outbox"\n') == {
        "bookkeeping.outbox"
    }
    assert named_in('X = b"DELETE FROM content.node"; Y = f"{X} jobs.job WHERE"') == {
        "content.node",
        "jobs.job",
    }
    assert "bookkeeping.outbox" not in set(allowed(f"{SERVICES}/cleanup/sweep.py"))
