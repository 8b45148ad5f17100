"""What clients ask for: a shape whose every text is short, so that a small model comes to its end."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

QUESTION = "What is the weather in Paris for the next three days?"


class Trip(BaseModel):
    """A trip to a city."""

    city: Annotated[str, Field(max_length=12)]
    days: Annotated[int, Field(ge=1, le=9)]
    by: Literal["train", "car"]


def get_weather(city: Annotated[str, Field(max_length=12)], days: Annotated[int, Field(ge=1, le=9)]) -> str:
    """Tells the weather of a city.

    Args:
        city: The name of the city.
        days: The number of days.
    """
    return f"{city}: sunny for {days} days"
