"""docs/reference/settings.md names every setting as the environment does."""

import pytest
from pydantic import BaseModel, ValidationError

from eden_memory.settings import Settings
from tools.reference.export import fixed_numbers, settings_page


def variables() -> set[str]:
    """Every setting as a variable."""
    found: set[str] = set()
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= {f"{name}_{one}" for one in kind.model_fields}
        else:
            found.add(name)
    return {f"EDEN_{one.upper()}" for one in found}


def test_every_setting_has_one_row() -> None:
    rows = [line.split("`")[1] for line in settings_page().splitlines() if line.startswith("| `EDEN_")]
    assert sorted(rows) == sorted(variables())


def test_a_variable_read_by_its_name_on_the_page_reaches_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDEN_MEMORY_CONTEXT_FACTS", "7")
    monkeypatch.setenv("EDEN_LLM", "openai")
    settings = Settings()
    assert (settings.memory.context_facts, settings.llm) == (7, "openai")


def test_a_name_that_a_group_does_not_have_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDEN_MEMORY_NO_SUCH", "7")
    with pytest.raises(ValidationError):
        Settings()


def test_the_page_lists_every_fixed_number_with_what_it_is() -> None:
    found = fixed_numbers()
    assert found["MOST_FOUND"] == ("200", "Facts that one search returns, at most.")
    assert [name for name, (_, said) in found.items() if not said] == []
    assert all(f"| `{name}` | {value} | {said} |" in settings_page() for name, (value, said) in found.items())
