"""What is stated and waits to be decided: statements of proposals, and of commands that add. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from eden_memory.domain.facts.fact_hash import fact_hash, fact_id
from eden_memory.domain.forgetting.forgotten import Marks
from eden_memory.domain.stage import Delivery
from schemas.events import CommandRef, FactCommanded, FactsProposed
from schemas.provenance import SourceMessage, Statement
from schemas.scopes import Scope


@dataclass(frozen=True, slots=True)
class Stated:
    """One statement; `fact_id` is the fact's that it becomes if it is added."""

    delivery: Delivery
    statement: Statement
    fact_id: str
    hash: str
    at: datetime
    command: CommandRef | None = None
    expires_at: datetime | None = None

    @property
    def text(self) -> str:
        """What is stated."""
        return self.statement.text

    @property
    def sources(self) -> tuple[SourceMessage, ...]:
        """The messages that it rests on."""
        return self.statement.sources


def stated_in(deliveries: Iterable[Delivery]) -> list[Stated]:
    """The statements of proposals, in order."""
    return [
        Stated(
            delivery=delivery,
            statement=statement,
            fact_id=fact_id(proposed.formation_id, proposed.scope.key, statement.number),
            hash=fact_hash(statement.text),
            at=proposed.formed_at,
        )
        for delivery in deliveries
        if isinstance(proposed := delivery.event, FactsProposed)
        for statement in proposed.facts
    ]


def stated_by(delivery: Delivery, command: FactCommanded) -> Stated:
    """The statement of a command that adds a fact."""
    assert command.text is not None
    return Stated(
        delivery=delivery,
        statement=Statement(number=1, text=command.text, sources=command.sources),
        fact_id=fact_id(command.command_id, command.scope.key, 1),
        hash=fact_hash(command.text),
        at=command.asked_at,
        command=command_ref(command),
        expires_at=command.expires_at,
    )


def command_ref(command: FactCommanded) -> CommandRef:
    """The command as a change names it."""
    return CommandRef(
        command_id=command.command_id, action=command.action, by=command.by, asked_by=command.asked_by
    )


def firsts(stated: Iterable[Stated]) -> list[Stated]:
    """Of those that say the same the first: what becomes of it becomes of the others."""
    by_hash: dict[str, Stated] = {}
    for one in stated:
        by_hash.setdefault(one.hash, one)
    return list(by_hash.values())


def remembered(stated: Sequence[Stated], scope: Scope, marks: Marks) -> list[Stated]:
    """The statements that do not rest on forgotten messages alone, with the sources that are left."""
    if not marks:
        return list(stated)
    return [_reduced(one, marks) for one in stated if not marks.rests_on_nothing(scope, one.sources, one.at)]


def _reduced(one: Stated, marks: Marks) -> Stated:
    left = marks.left(one.sources)
    return replace(one, statement=one.statement.model_copy(update={"sources": left}))
