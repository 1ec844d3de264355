"""Who may call, and which subscriber is meant: parameters of several of the publisher's routes."""

from typing import Annotated

from fastapi import Depends, Path
from pydantic import AfterValidator

from packhorse.runtime.auth import Principal, TokenScope, require
from packhorse.runtime.problems import Problem

Distributor = Annotated[Principal, Depends(require(TokenScope.DISTRIBUTE))]
Reader = Annotated[Principal, Depends(require(TokenScope.QUEUES_READ))]
Clearer = Annotated[Principal, Depends(require(TokenScope.QUEUES_CLEAR))]
Operator = Annotated[Principal, Depends(require(TokenScope.SUBSCRIBERS_OPERATE))]


def _storable(name: str) -> str:
    if not name.isprintable():
        raise Problem(404, detail="no subscriber can have this name")
    return name


StorableName = Annotated[str, AfterValidator(_storable)]
"""A subscriber's name; `Problem` answers one that no subscriber, and no text of a database, has."""
SubscriberName = Annotated[StorableName, Path(max_length=200)]
