"""Who may call, and which subscriber is meant: parameters of several of the publisher's routes."""

from typing import Annotated

from fastapi import Depends, Path

from packhorse.runtime.auth import Principal, TokenScope, require

Distributor = Annotated[Principal, Depends(require(TokenScope.DISTRIBUTE))]
Reader = Annotated[Principal, Depends(require(TokenScope.QUEUES_READ))]
Clearer = Annotated[Principal, Depends(require(TokenScope.QUEUES_CLEAR))]
Operator = Annotated[Principal, Depends(require(TokenScope.SUBSCRIBERS_OPERATE))]
SubscriberName = Annotated[str, Path(max_length=200)]
