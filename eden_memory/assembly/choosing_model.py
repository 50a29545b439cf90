"""The LanguageModel port over rules and providers: each question goes to what is chosen for it."""

from collections.abc import Callable
from functools import cache

from eden_memory.models.model_protocols import LanguageModel
from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt


class ChoosingModel:
    """A LanguageModel; `by_rules` says of a question whether no provider is asked for it."""

    def __init__(self, asked: LanguageModel, by_rules: Callable[[Asking], bool]) -> None:
        self._asked, self._by_rules = asked, by_rules

    async def earlier(self, unit: str) -> Earlier | None:
        """What has arrived for a unit before a crash, whoever is chosen for it by now."""
        return await self._asked.earlier(unit)

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,
        check: Callable[[A], str | None] | None = None,
    ) -> Answered[A]:
        """The answer; ProviderError, PermanentError, EdenError where no model is named."""
        model = rules() if self._by_rules(asking) else self._asked
        return await model.ask(prompt, answer, asking, check)


@cache
def rules() -> LanguageModel:
    """The offline model, loaded where it is used."""
    from eden_memory.formation.offline import OfflineModel  # noqa: PLC0415 - see above

    return OfflineModel()
