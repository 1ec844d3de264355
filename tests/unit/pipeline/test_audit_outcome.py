"""What the audit says of a path names a package only where it knows it."""

from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from packhorse_services.pipeline.audit import commands as audit
from packhorse_services.pipeline.audit.outcome import Audited, ExitCode, Finding, exit_code
from packhorse_services.pipeline.program import program


@pytest.mark.parametrize(
    ("offset", "package_id", "said"),
    [
        (None, "", "missing /a (no package)"),
        (4, "p-4", "missing /a (offset 4 p-4)"),
        (4, "", "missing /a (a package up to offset 4, by its snapshot)"),
    ],
)
def test_a_finding_names_its_origin(offset: int | None, package_id: str, said: str) -> None:
    finding = Finding("/a", "missing", offset, package_id)
    audited = Audited("sub", {"main": 9}, {"missing": 1}, (finding,))
    assert [*audited.lines()] == ["sub: 1 missing (main at 9)", f"  {said}"]


def test_what_is_undecided_neither_differs_nor_is_equal() -> None:
    finding = Finding("/a", "undecided", 4, "p-4")
    audited = Audited("sub", {"main": 9}, {"missing": 0, "undecided": 1}, (finding,))
    assert not audited.differs
    assert not audited.is_equal
    assert exit_code([audited]) is ExitCode.UNKNOWN
    assert [*audited.lines()] == [
        "sub: 1 undecided (main at 9)",
        "  undecided /a (offset 4 p-4)",
    ]


EQUAL = Audited("a", {"main": 9})
DIFFERS = Audited("b", {"main": 9}, {"missing": 2, "extra": 1, "undecided": 4})
UNDECIDED = Audited("c", {"main": 9}, {"undecided": 1})
AWAY = Audited("d", problem="the database of subscriber d can't be read")


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([EQUAL], 0, ""),
        ([EQUAL, DIFFERS, AWAY], 1, "error: 1 of 3 subscribers differ (b), in 3 paths, which the"),
        ([DIFFERS] * 7, 1, "error: 7 of 7 subscribers differ (b, b, b, b, b and 2 more), in 21 "),
        (
            [EQUAL, AWAY],
            3,
            "error: nothing differs for certain, but 1 of 2 subscribers could not be compared "
            "(d: the database of subscriber d can't be read); see the report",
        ),
        (
            [UNDECIDED],
            3,
            "error: nothing differs for certain, but 1 of 1 have undecided paths (c); see the",
        ),
    ],
)
def test_an_end_other_than_equal_says_why_in_one_line(
    found: Sequence[Audited],
    code: int,
    said: str,
    form: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PACKHORSE_BLOBS_URL", "/blobs")
    monkeypatch.setenv("PACKHORSE_SUBSCRIBER_DATABASES", '{"a": "postgresql://a"}')
    monkeypatch.setattr(audit, "_audited", lambda *_, **__: (found, []))
    ended = CliRunner().invoke(program("audit"), ["audit", *form])
    assert ended.exit_code == code
    assert ended.stderr.startswith(said)
    assert len(ended.stderr.splitlines()) == bool(code)
    assert all(one.subscriber in ended.stdout for one in found), "the report stays on stdout"
