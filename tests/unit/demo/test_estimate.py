"""What the demo says that it will cost."""

from decimal import Decimal

import pytest

from eden_memory.demo.conversation import CALLS, EXAMPLE, Conversation, estimate, read_conversation
from eden_memory.settings import ModelsSettings, Settings

CENT = Decimal("0.01")


@pytest.fixture(scope="module")
def conversation() -> Conversation:
    return read_conversation(EXAMPLE)


def cost(conversation: Conversation, llm: str = "offline", **models: str) -> Decimal | None:
    return estimate(conversation, Settings(llm=llm, models=ModelsSettings(**models)))  # pyright: ignore[reportArgumentType]


def test_rules_cost_nothing(conversation: Conversation) -> None:
    assert cost(conversation) == 0


def test_each_role_costs_what_its_own_provider_asks(conversation: Conversation) -> None:
    names = dict(zip(CALLS, ("openai:gpt-5-mini", "google", "openai:gpt-5.1", "google"), strict=True))
    apart = [cost(conversation, **{role: model}) for role, model in names.items()]
    together = cost(conversation, **names)
    assert together is not None
    assert all(one is not None and one > 0 for one in apart)
    assert abs(together - sum(one or 0 for one in apart)) < CENT


def test_a_dearer_model_of_one_role_makes_it_dearer(conversation: Conversation) -> None:
    usual = cost(conversation, "openai")
    dearer = cost(conversation, "openai", facts="openai:gpt-5.1")
    assert usual is not None
    assert dearer is not None
    assert dearer > usual


def test_one_unknown_price_makes_the_sum_unknown(conversation: Conversation) -> None:
    assert cost(conversation, "openai", facts="http://127.0.0.1:9/v1#mine") is None
