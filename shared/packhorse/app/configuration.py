"""An app's settings: by arguments, by the environment, or those of a stack."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from packhorse.client.stack_folder import StackFolder, default_folder
from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.runtime.reasons import reason_of
from packhorse.topology.configuration import TopologyConfiguration

_PREFIX = "PACKHORSE_"
_MISSING = {
    "database_url": (
        "no database is known: give database_url=…, PACKHORSE_DATABASE_URL, data= or "
        "PACKHORSE_DATA, or start a stack with packhorse up --data "
    ),
    "journal_url": (
        "no journal is known: give journal_url=…, PACKHORSE_JOURNAL_URL, data= or "
        "PACKHORSE_DATA, or start a stack with packhorse up --data "
    ),
}


class AppConfiguration(TopologyConfiguration):
    """Settings of an app."""

    database_url: str = Field(default="", repr=False)
    database_url_file: Path | None = None


def configured(
    given: Mapping[str, Any],
    data: Path | str | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    needs: str = "database_url",
) -> AppConfiguration:
    """Return what is given, else what `PACKHORSE_…` says, else what the stack's folder does.

    The last is asked where the setting that it `needs` is not known otherwise. What is named by a
    file counts as what is named itself: of the two forms the one of the nearer place is taken.

    The folder is `data`, else PACKHORSE_DATA, else the usual one; its settings are those with which
    the stack's own programs at the author's database run. Raises `InvalidConfiguration`.
    """
    if unknown := set(given) - set(AppConfiguration.model_fields):
        raise InvalidConfiguration(f"an app has no setting {min(unknown)!r}")
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = _over(chosen, _settings(environment))
    if not _has(settings, needs):
        folder = StackFolder(Path(data or settings.get("data") or default_folder(environment)))
        settings = _over(settings, _settings(folder.author_settings()))
        if not _has(settings, needs):
            raise InvalidConfiguration(f"{_MISSING[needs]}{folder.root}")
    return _checked({"log_format": "console", **settings})


def _over(near: Mapping[str, Any], far: Mapping[str, Any]) -> dict[str, Any]:
    named = {name.removesuffix("_file") for name in near}
    left = {name: far[name] for name in far if name.removesuffix("_file") not in named}
    return {**left, **near}


def _checked(settings: Mapping[str, Any]) -> AppConfiguration:
    try:
        return AppConfiguration(**settings)
    except ValidationError as error:
        wrong = "; ".join(
            f"{one['loc'][0]}: {reason_of(one['msg'])}" if one["loc"] else reason_of(one["msg"])
            for one in error.errors()
        )
        raise InvalidConfiguration(wrong) from None


def _has(settings: Mapping[str, Any], name: str) -> bool:
    return bool(settings.get(name) or settings.get(f"{name}_file"))


def _settings(variables: Mapping[str, str]) -> dict[str, Any]:
    return {
        name.removeprefix(_PREFIX).lower(): value
        for name, value in variables.items()
        if name.startswith(_PREFIX)
    }
