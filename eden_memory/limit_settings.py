"""Settings that say how much is formed and kept of each scope (eden_memory.settings has all others)."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from eden_memory.schemas.scopes import ScopeKind
from eden_memory.scope_limits import DEFAULTS, STANDARD, FormationLimits, ScopeLimits

AGENT, GROUP, USER = DEFAULTS["agent"], DEFAULTS["group"], DEFAULTS["user"]
SESSION, SHARD = DEFAULTS["session"], DEFAULTS["shard"]


class SettingsGroup(BaseModel):
    """One group of settings; a name that it does not know is an error, not silence."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LimitsSettings(SettingsGroup):
    """How much is formed and kept, of every agent whose streams (`eden stream`) say nothing else.

    `threshold`: reflections at which a scope consolidates. `blob_words`: words of its consolidated text, at most.
    `least`, `most`: reflections that a window is asked for. What an answer holds beyond a limit is cut and counted.
    """

    facts: PositiveInt = Field(STANDARD.facts, description="facts of one window, at most")
    fact_words: PositiveInt = Field(STANDARD.fact_words, description="words of a fact, at most")
    reflection_words: PositiveInt = Field(
        STANDARD.reflection_words, description="words of a reflection, at most"
    )
    similar_facts: PositiveInt = Field(
        STANDARD.similar_facts, description="known facts that a new one is compared with, at most"
    )
    agent_threshold: PositiveInt = Field(
        AGENT.threshold, description="buffered reflections at which it consolidates"
    )
    agent_blob_words: PositiveInt = Field(AGENT.blob_words, description="words of its blob, at most")
    agent_least: NonNegativeInt = Field(AGENT.least, description="reflections of a window, at least")
    agent_most: NonNegativeInt = Field(AGENT.most, description="reflections of a window, at most")
    agent_item_words: PositiveInt | None = Field(
        None,
        description="words of its facts and reflections; unset: as for all",
    )
    group_threshold: PositiveInt = Field(
        GROUP.threshold, description="buffered reflections at which it consolidates"
    )
    group_blob_words: PositiveInt = Field(GROUP.blob_words, description="words of its blob, at most")
    group_least: NonNegativeInt = Field(GROUP.least, description="reflections of a window, at least")
    group_most: NonNegativeInt = Field(GROUP.most, description="reflections of a window, at most")
    group_item_words: PositiveInt | None = Field(
        None,
        description="words of its facts and reflections; unset: as for all",
    )
    user_threshold: PositiveInt = Field(
        USER.threshold, description="buffered reflections at which it consolidates"
    )
    user_blob_words: PositiveInt = Field(USER.blob_words, description="words of its blob, at most")
    user_least: NonNegativeInt = Field(USER.least, description="reflections of a window, at least")
    user_most: NonNegativeInt = Field(USER.most, description="reflections of a window, at most")
    user_item_words: PositiveInt | None = Field(
        None,
        description="words of its facts and reflections; unset: as for all",
    )
    session_threshold: PositiveInt = Field(
        SESSION.threshold, description="buffered reflections at which it consolidates"
    )
    session_blob_words: PositiveInt = Field(SESSION.blob_words, description="words of its blob, at most")
    session_least: NonNegativeInt = Field(SESSION.least, description="reflections of a window, at least")
    session_most: NonNegativeInt = Field(SESSION.most, description="reflections of a window, at most")
    session_item_words: PositiveInt | None = Field(
        None,
        description="words of its facts and reflections; unset: as for all",
    )
    shard_threshold: PositiveInt = Field(
        SHARD.threshold, description="buffered reflections at which it consolidates"
    )
    shard_blob_words: PositiveInt = Field(SHARD.blob_words, description="words of its blob, at most")
    shard_least: NonNegativeInt = Field(SHARD.least, description="reflections of a window, at least")
    shard_most: NonNegativeInt = Field(SHARD.most, description="reflections of a window, at most")
    shard_item_words: PositiveInt | None = Field(
        None,
        description="words of its facts and reflections; unset: as for all",
    )

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
