"""What is wrong with a value is said in this project's words, not in pydantic's."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from packhorse.runtime.reasons import reason_of


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = Field(default=1, ge=1)
    name: Annotated[str, Field(min_length=2, pattern="^[a-z]+$")] = "ab"
    kind: Literal["A", "B"] = "A"
    paths: list[str] = Field(default=[], max_length=1)
    must: bool

    @field_validator("must")
    @classmethod
    def _check(cls, value: bool) -> bool:
        if not value:
            raise ValueError("say yes")
        return value


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "this must be an object"),
        ({}, "this is missing"),
        ({"must": False}, "say yes"),
        ({"must": True, "other": 1}, "this is not known here"),
        ({"must": True, "count": "x"}, "this must be an integer"),
        ({"must": True, "count": 0}, "this must be greater than or equal to 1"),
        ({"must": True, "name": "a"}, "this must have at least 2 characters"),
        ({"must": True, "kind": "C"}, "this must be 'A' or 'B'"),
        ({"must": True, "paths": "x"}, "this must be a list"),
        ({"must": True, "paths": ["a", "b"]}, "this must have at most 1 item"),
    ],
)
def test_a_reason_is_in_plain_words(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as failed:
        Body.model_validate(body)
    reasons = [reason_of(str(one["msg"])) for one in failed.value.errors()]
    assert any(reason.startswith(said) for reason in reasons), reasons
    for phrase in ("Value error", "Input should", "should have", "unable to parse"):
        assert not any(phrase in reason for reason in reasons)
