"""`packhorse distribute --bulk`: which options it takes, and what the pipeline is given."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from packhorse_services.cli import service_commands
from packhorse_services.cli.app import run
from packhorse_services.cli.client.connection import Connection


class Pipeline:
    """Stands for the pipeline's program, and ends as it is asked to."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.arguments: Sequence[str] = ()
        self.settings: Mapping[str, str] = {}

    def __call__(
        self, connection: Connection, arguments: Sequence[str], settings: Mapping[str, str]
    ) -> NoReturn:
        self.arguments, self.settings = arguments, settings
        sys.exit(self.code)


@pytest.mark.parametrize(
    "options",
    [
        ("/a", "--bulk"),
        ("/a", "/b", "--deep", "--bulk"),
        ("--deep", "--bulk"),
        ("/a", "--deep", "--id", "x"),
        ("/a", "--deep", "--bulk", "--key", "k"),
        ("/a", "--deep", "--bulk", "--wait"),
        ("/a", "--deep", "--bulk", "--dry-run"),
        ("/a", "--deep", "--bulk", "--action", "delete"),
        ("/a", "--deep", "--bulk", "--producer", "p", "--from-file", "f"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["distribute", *options]) == 2
    assert "--bulk goes with --deep" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_the_pipeline_gets_publisher_and_token_by_its_environment(
    code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = Pipeline(code)
    monkeypatch.setattr(service_commands, "pipeline", pipeline)
    before = ["--data", str(tmp_path), "--server", "http://author:1", "--token", "s3cret"]
    assert run([*before, "distribute", "--deep", "/a", "--bulk", "--id", "x"]) == code
    assert pipeline.arguments == ["bulk", "--deep", "/a", "--id", "x"]
    assert pipeline.settings == {
        "PACKHORSE_PUBLISHER_URL": "http://author:1",
        "PACKHORSE_PUBLISHER_TOKEN": "s3cret",
    }


def test_what_the_command_names_wins_over_a_file_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = {"PACKHORSE_PUBLISHER_TOKEN_FILE": "token"}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(service_commands, "import_module", lambda _: SimpleNamespace(main=int))
    with pytest.raises(SystemExit):
        service_commands.pipeline(
            Connection(tmp_path), ["bulk"], {"PACKHORSE_PUBLISHER_TOKEN": "s3cret"}
        )
    assert environment["PACKHORSE_PUBLISHER_TOKEN"] == "s3cret"
    assert "PACKHORSE_PUBLISHER_TOKEN_FILE" not in environment, "both would be refused"
