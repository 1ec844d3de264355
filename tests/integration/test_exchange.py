"""Several statements in one exchange with Postgres."""

import psycopg
import pytest

from packhorse.db.connect import connect
from packhorse_services.publisher.publish.first_look import exchange

ODD = ["it's", 'a "b"', "back\\slash", "100 %s; SELECT 1", "{ä,NULL}", ""]


def test_each_statement_has_its_rows(database_url: str) -> None:
    with connect(database_url, "tests", autocommit=True) as conn:
        found = exchange(
            conn,
            [
                ("CREATE TEMPORARY TABLE odd (text text)", ()),
                ("INSERT INTO odd SELECT unnest(%s::text[])", [ODD]),
                (
                    "SELECT text FROM odd WHERE text = ANY(%b) ORDER BY text = %s, text",
                    [ODD, ODD[0]],
                ),
                ("SELECT 1.5::float8, %s::bytea", [b"\\x00'"]),
            ],
        )
        assert found[:2] == [[], []]
        assert {row[0] for row in found[2]} == set(ODD)
        assert found[2][-1] == (ODD[0],)
        assert found[3] == [(1.5, b"\\x00'")]


def test_what_is_behind_a_statement_that_fails_is_not_done(database_url: str) -> None:
    with connect(database_url, "tests", autocommit=True) as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            exchange(
                conn,
                [
                    ("CREATE TEMPORARY TABLE undone ()", ()),
                    ("SELECT 1 / 0", ()),
                    ("CREATE TEMPORARY TABLE behind ()", ()),
                ],
            )
        assert exchange(conn, [("SELECT to_regclass('undone'), to_regclass('behind')", ())]) == [
            [(None, None)]
        ]
