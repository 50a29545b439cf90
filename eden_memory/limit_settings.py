"""Settings that say how much is formed and kept of each scope (eden_memory.settings has all others)."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from eden_memory.schemas.scopes import ScopeKind
from eden_memory.scope_limits import DEFAULTS, STANDARD, FormationLimits, ScopeLimits

AGENT, GROUP, USER = DEFAULTS["agent"], DEFAULTS["group"], DEFAULTS["user"]
SESSION, SHARD = DEFAULTS["session"], DEFAULTS["shard"]


class SettingsGroup(BaseModel):
    """One group of settings; a name that it does not know is an error, not silence."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Threshold = Annotated[
    PositiveInt, Field(description="number of buffered reflections at which it consolidates")
]
BlobWords = Annotated[PositiveInt, Field(description="most words of its blob")]
Least = Annotated[NonNegativeInt, Field(description="least reflections of a window")]
Most = Annotated[NonNegativeInt, Field(description="most reflections of a window")]
ItemWords = Annotated[
    PositiveInt | None, Field(description="words of its facts and reflections; unset: as for all")
]


class LimitsSettings(SettingsGroup):
    """How much is formed and kept; an agent's streams (`eden stream`) take precedence.

    `threshold`: number of reflections at which a scope consolidates. `blob_words`: most words of its consolidated
    text. `least`, `most`: reflections that a window is asked for. What exceeds a limit is cut and counted.
    """

    facts: PositiveInt = Field(STANDARD.facts, description="most facts of one window")
    fact_words: PositiveInt = Field(STANDARD.fact_words, description="most words of a fact")
    reflection_words: PositiveInt = Field(STANDARD.reflection_words, description="most words of a reflection")
    similar_facts: PositiveInt = Field(
        STANDARD.similar_facts, description="most known facts with which a new one is compared"
    )
    agent_threshold: Threshold = AGENT.threshold
    agent_blob_words: BlobWords = AGENT.blob_words
    agent_least: Least = AGENT.least
    agent_most: Most = AGENT.most
    agent_item_words: ItemWords = None
    group_threshold: Threshold = GROUP.threshold
    group_blob_words: BlobWords = GROUP.blob_words
    group_least: Least = GROUP.least
    group_most: Most = GROUP.most
    group_item_words: ItemWords = None
    user_threshold: Threshold = USER.threshold
    user_blob_words: BlobWords = USER.blob_words
    user_least: Least = USER.least
    user_most: Most = USER.most
    user_item_words: ItemWords = None
    session_threshold: Threshold = SESSION.threshold
    session_blob_words: BlobWords = SESSION.blob_words
    session_least: Least = SESSION.least
    session_most: Most = SESSION.most
    session_item_words: ItemWords = None
    shard_threshold: Threshold = SHARD.threshold
    shard_blob_words: BlobWords = SHARD.blob_words
    shard_least: Least = SHARD.least
    shard_most: Most = SHARD.most
    shard_item_words: ItemWords = None

    @model_validator(mode="after")
    def _least_is_not_above_most(self) -> Self:
        for kind, of_kind in self.formation().scopes.items():
            if of_kind.least > of_kind.most:
                raise ValueError(f"{kind}_least is above {kind}_most")
        return self

    def formation(self) -> FormationLimits:
        """As stages take them."""
        scopes: dict[ScopeKind, ScopeLimits] = {
            "agent": ScopeLimits(
                self.agent_threshold,
                self.agent_blob_words,
                self.agent_least,
                self.agent_most,
                item_words=self.agent_item_words,
            ),
            "group": ScopeLimits(
                self.group_threshold,
                self.group_blob_words,
                self.group_least,
                self.group_most,
                item_words=self.group_item_words,
            ),
            "user": ScopeLimits(
                self.user_threshold,
                self.user_blob_words,
                self.user_least,
                self.user_most,
                item_words=self.user_item_words,
            ),
            "session": ScopeLimits(
                self.session_threshold,
                self.session_blob_words,
                self.session_least,
                self.session_most,
                item_words=self.session_item_words,
            ),
            "shard": ScopeLimits(
                self.shard_threshold,
                self.shard_blob_words,
                self.shard_least,
                self.shard_most,
                item_words=self.shard_item_words,
            ),
        }
        return FormationLimits(scopes, self.facts, self.fact_words, self.reflection_words, self.similar_facts)
