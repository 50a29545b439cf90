"""What a switch says is to be set: what the installation does not have, as it is set, and nothing else."""

from eden_memory.replay.reform.reform_assembly import own_settings
from eden_memory.replay.reform.reform_settings import overridden, overrides_of, to_be_set
from eden_memory.schemas.documents import ReformAsked
from eden_memory.settings import MemorySettings, Settings


def said(settings: Settings, *overrides: str, streams: str | None = None) -> list[str]:
    asked = ReformAsked(overrides=overrides_of(overrides, None), streams=streams)
    own = own_settings(overridden(settings, asked.overrides), "trial", 1, own_streams=streams is not None)
    return [one.strip() for one in to_be_set(settings, own, asked)][1:]


def test_other_settings_are_lines_that_a_shell_takes() -> None:
    given = (
        "memory.similar=0.8",
        "llm=https://a.example/v1#m x",
        "models.fast=gpt-5.1",
        "models.facts=",
    )
    assert said(Settings(), *given[:3]) == [
        "EDEN_LLM='https://a.example/v1#m x'",
        "EDEN_MEMORY_SIMILAR=0.8",
        "EDEN_MODELS_FAST=gpt-5.1",
    ]
    assert said(Settings(), given[3]) == [], "it is unset already"


def test_what_the_installation_has_already_is_not_said() -> None:
    settings = Settings(memory=MemorySettings(similar=0.8))
    assert said(settings, "memory.similar=0.8") == []
    assert said(settings, "memory.similar=0.9", "memory.dedup=true") == ["EDEN_MEMORY_SIMILAR=0.9"]


def test_streams_of_its_own_are_to_be_copied() -> None:
    (line,) = said(Settings(), streams="digest")
    assert "db.memory_ns_trial_streams.find()" in line
    assert "db.memory_streams.replaceOne(" in line
