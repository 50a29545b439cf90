"""The language model and the embedder that the settings name, composed of adapters and wrappers."""

from functools import cache
from typing import TYPE_CHECKING

from eden_memory.logs import LibraryLogger
from eden_memory.models import call_accounts
from eden_memory.models.asking_model import AskingModel, Chat, Router
from eden_memory.models.breaker import WAITS, Pings
from eden_memory.models.cached_embedders import KeptEmbedder
from eden_memory.models.call_accounts import Accounts, CallWatch, Cost
from eden_memory.models.catalogue import (
    CHAT,
    LOCAL_MODELS,
    OFFLINE,
    EmbeddingModel,
    ModelChoice,
    asked_for,
    chat_providers,
    choice_for,
    embedder_of,
    provider_name,
    said,
    unused_keys,
    uses,
    vectors_of,
)
from eden_memory.models.embedding_calls import EmbeddingCalls
from eden_memory.models.guard import Guard
from eden_memory.models.judging import CallBudget
from eden_memory.models.local_embedder import LocalEmbedder
from eden_memory.models.provider_calls import ChatProvider, EmbeddingProvider
from eden_memory.models.question import Asking, Embedder, KeptAnswers, LanguageModel
from eden_memory.models.stored_answers import AnswerStore
from eden_memory.names import ORIGINAL
from eden_memory.settings import Settings

if TYPE_CHECKING:
    from eden_memory.models.providers import Providers

log = LibraryLogger()


class Models:
    """All models of a process, made in the event loop that uses them; one guard for each provider."""

    def __init__(
        self,
        settings: Settings,
        answers: AnswerStore,
        cost: Cost,
        *,
        calls: CallWatch | None = None,
        namespace: str = "live",
        providers: "Providers | None" = None,
        probe_waits: tuple[float, float] = WAITS,
    ) -> None:
        """EdenError if a provider that is asked for has no key; `providers` in place of the settings' own.

        `namespace`: on whose account calls are. What a question is called follows from the settings' pipeline, so
        that it stays the same when that becomes live.
        `probe_waits`: seconds between two probes of a provider that is away, the first time and at most.
        """
        self._settings, self._answers, self._cost = settings, answers, cost
        pipeline = settings.placement.pipeline
        self._units = "live" if pipeline == ORIGINAL else pipeline
        self._waits = probe_waits
        self._providers = providers
        if asked_for(settings):
            self._provided()
        self._accounts = Accounts(namespace, calls)
        self._budget = CallBudget()
        self._pings = Pings(self._accounts, cost)
        self._guards: dict[str, Guard] = {}
        asking = self._language_model()
        self.language_model: LanguageModel = asking
        self.kept_answers: KeptAnswers = asking
        self.embedder: Embedder = self._embedder()

    def introduce(self) -> None:
        """Log what forms memory here, and which keys are set but not used."""
        introduce(self._settings, self.embedder.model)

    def prepare(self) -> None:
        """Load in advance what the first call would have to load while its window waits."""
        from eden_memory.formation import prompts  # noqa: PLC0415 - a search loads no prompts

        prompts.prepare(short=self._settings.models.prompts == "short")
        if self._providers is not None:
            call_accounts.prepare()

    async def close(self) -> None:
        """Release threads and connections."""
        if isinstance(self.embedder, LocalEmbedder | KeptEmbedder):
            await self.embedder.close()
        if self._providers is not None:
            await self._providers.close()

    def _language_model(self) -> AskingModel:
        models = self._settings.models
        chat = Chat(self._accounts, self._cost, self._budget, log_prompts=models.log_prompts)
        router = Router(self._choose, self._guard, self._pings.chat, models.effort)
        return AskingModel(
            router, chat, self._answers, self._budget, self._accounts, self._units, self._offline
        )

    def _offline(self, asking: Asking) -> LanguageModel | None:
        return rules() if self._choice(asking).provider == OFFLINE else None

    def _embedder(self) -> Embedder:
        asked = self._providers
        if asked is None or asked.embeddings is None or asked.embedding_model is None:
            return LocalEmbedder(model=vectors_of(self._settings))
        provider, model = asked.embeddings, asked.embedding_model
        dimensions = model.dimensions or None
        calls = self._embedding_calls(provider, model, dimensions)
        return KeptEmbedder(calls, self._accounts, model.name, dimensions, namespace=self._units)

    def _embedding_calls(
        self, provider: EmbeddingProvider, model: EmbeddingModel, dimensions: int | None
    ) -> EmbeddingCalls:
        guard = self._guard(provider)
        breaker = guard.breaker(f"embeddings/{model.name}", self._pings.embeddings(provider, model.name))
        return EmbeddingCalls(
            provider, model.name, guard, breaker, self._answers, self._cost, self._budget, dimensions
        )

    def _guard(self, provider: ChatProvider | EmbeddingProvider) -> Guard:
        models = self._settings.models
        if provider.name not in self._guards:
            self._guards[provider.name] = Guard(
                provider.name,
                models.at_once,
                models.timeout_seconds,
                self._waits,
                known=provider.name in CHAT,
            )
        return self._guards[provider.name]

    def _choice(self, asking: Asking) -> ModelChoice:
        return choice_for(asking.role, asking.tier, self._settings, asking.model)

    def _choose(self, asking: Asking) -> tuple[ChatProvider, str]:
        choice = self._choice(asking)
        return self._provided().chat(choice.provider), choice.model or ""

    def _provided(self) -> "Providers":
        """Made where a provider is asked for: their SDKs take seconds to load."""
        if self._providers is None:
            from eden_memory.models.providers import Providers  # noqa: PLC0415 - see above

            self._providers = Providers(self._settings)
        return self._providers


@cache
def rules() -> LanguageModel:
    """The offline model, loaded where it is used."""
    from eden_memory.formation.offline import OfflineModel  # noqa: PLC0415 - see above

    return OfflineModel()


def introduce(settings: Settings, vectors: str) -> None:
    """Log which role uses what and what that means; never a key, only the name of its variable."""
    used = {said(role, tier): choice for choice, role, tier in uses(settings)}
    by_rules = [role for role, choice in used.items() if choice.provider == OFFLINE]
    if not chat_providers(settings):
        log.warning(
            "no language model is used: rules form memory, which is much poorer than a real model's",
            hint="EDEN_LLM=openai, anthropic, google, or the URL of an OpenAI-compatible endpoint",
            vectors=vectors,
        )
    else:
        told = {role: str(choice) for role, choice in used.items()}
        log.info("language models", vectors=vectors, **told)
        if by_rules:
            log.warning("rules take the place of a model, much poorer than it would be", roles=by_rules)
    embedder = embedder_of(settings)
    if embedder not in (*LOCAL_MODELS, *chat_providers(settings)):
        log.info("texts are sent to be embedded", provider=provider_name(embedder))
    for provider, variable in unused_keys(asked_for(settings)):
        log.info("a key was found and is not used", variable=variable, hint=f"EDEN_LLM={provider} uses it")
