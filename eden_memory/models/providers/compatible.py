"""Any endpoint that speaks OpenAI's format: held to JSON as far as it can be, which is found out once."""

import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Literal

import httpx2
from pydantic import ValidationError

from eden_memory.models.calls import Adapter, Completion, PromptTurn, Tokens, Trial
from eden_memory.models.providers.catalogue import provider_name
from eden_memory.models.providers.openai import Body, InvalidRequest, OpenAIWire, response_format
from eden_memory.models.providers.provider_json import described, found_json
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.settings import Effort

Form = Literal["schema", "json", "text"]
FORMS: tuple[Form, ...] = ("schema", "json", "text")
THOUGHTS = 2_048
"""Tokens beyond its answer for a model that thinks in it; what cuts it off all the same has more the next time."""
NO_KEY = "none"
"""Sent where no key is given: local servers want none, and the SDK wants some."""


def wire_to(
    url: str, api_key: str | None, key_variable: str, pool: httpx2.AsyncClient, seconds: float
) -> OpenAIWire:
    """Requests to an endpoint given by its base URL."""
    key = f"the key in {key_variable}" if api_key else f"a call without a key (none in {key_variable})"
    return OpenAIWire(provider_name(url), api_key or NO_KEY, key, pool, seconds, url)


@dataclass(frozen=True, slots=True)
class _Question:
    """A request without the form of its answer; `most`: the answer's tokens, thoughts included."""

    model: str
    system: str
    turns: Sequence[PromptTurn]
    answer: type[ModelAnswer]
    most: int | None
    trials: list[Trial]
    """Requests made on the way to the one that counts."""


@dataclass(frozen=True, slots=True)
class _Try:
    """One request in one form: an answer, or the refusal of the form."""

    started_at: datetime
    seconds: float
    found: Completion | None
    refused: InvalidRequest | None

    def completed(self, tries: Sequence["_Try"]) -> Completion:
        """Its answer, with the tokens of all; the refusal if that is what it brought."""
        if self.found is None:
            raise self.refused or InvalidRequest("no form of answer is accepted", too_long=False)
        spent = reduce(
            Tokens.plus, (attempt.found.tokens for attempt in tries if attempt.found is not None), Tokens()
        )
        return replace(self.found, tokens=spent)

    def trial(self) -> Trial:
        """As a call that did not count."""
        if self.found is None:
            error = type(self.refused).__name__
            return Trial("provider_error", Tokens(), self.started_at, self.seconds, error=error)
        model = self.found.response_model
        return Trial("invalid", self.found.tokens, self.started_at, self.seconds, model)


class CompatibleChat(Adapter[OpenAIWire]):
    """A ChatProvider; tries a JSON Schema, then JSON mode, then plain text, and keeps to what worked of a model.

    A form is known to work once an answer in it was of the shape asked for: some endpoints accept a schema and
    ignore it. `effort` goes to every model as it is: what a compatible endpoint takes is not known.
    """

    def __init__(self, wire: OpenAIWire, effort: Effort | None = None) -> None:
        super().__init__(wire)
        self._effort: Effort | None = effort
        self._known: dict[str, Form] = {}
        self._accepted: dict[str, Form] = {}

    @property
    def wire(self) -> OpenAIWire:
        """Return the connection, to try a model with."""
        return self._connection

    @property
    def forms(self) -> Mapping[str, Form]:
        """Return what has been found out, by model."""
        return self._known

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[ModelAnswer],
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        """One request; until the model's form is known up to three, their tokens added up, and added to `trials`.

        A repair is one request all the same: a question that no form helps has a bounded number of calls.
        """
        form = self._known.get(model) or (self._accepted.get(model) if len(turns) > 1 else None)
        most = None if most is None else most + THOUGHTS
        question = _Question(model, system, turns, answer, most, trials if trials is not None else [])
        if form is None:
            return await self._find_out(question)
        return _json_of(await self._asked(form, question))

    async def _find_out(self, question: "_Question") -> Completion:
        model, answer = question.model, question.answer
        tries: list[_Try] = []
        try:
            for form in FORMS:
                tries.append(await self._tried(form, question))
                found = tries[-1].found
                if found is None:
                    continue
                self._accepted[model] = form
                if found.finish != "complete":
                    break
                if _fits(found.text, answer):
                    self._known[model] = form
                    break
        except BaseException:
            question.trials.extend(found.trial() for found in tries)
            raise
        counts = next((attempt for attempt in reversed(tries) if attempt.found is not None), tries[-1])
        question.trials.extend(found.trial() for found in tries if found is not counts)
        return counts.completed(tries)

    async def _tried(self, form: Form, question: "_Question") -> "_Try":
        """One request; a refusal of its form is noted, other failures are raised."""
        began, begun = datetime.now(UTC), time.perf_counter()
        found, refused = None, None
        try:
            found = _json_of(await self._asked(form, question))
        except InvalidRequest as error:
            if error.too_long:
                raise
            refused = error
        return _Try(began, time.perf_counter() - begun, found, refused)

    def _asked(self, form: Form, question: "_Question") -> Coroutine[Any, Any, Completion]:
        answer, system = question.answer, question.system
        return self._connection.chat(
            question.model,
            system if form == "schema" else f"{system}\n\n{described(answer)}",
            question.turns,
            _format(form, answer),
            self._effort,
            question.most,
            question.trials,
        )


def _json_of(found: Completion) -> Completion:
    """The JSON in a complete answer, without what stands around it."""
    if found.finish != "complete":
        return found
    return Completion(found_json(found.text), found.finish, found.tokens, found.response_model)


def _format(form: Form, answer: type[ModelAnswer]) -> Body | None:
    if form == "schema":
        return response_format(answer)
    return {"type": "json_object"} if form == "json" else None


def _fits(text: str, answer: type[ModelAnswer]) -> bool:
    try:
        answer.model_validate_json(text)
    except ValidationError:
        return False
    return True
