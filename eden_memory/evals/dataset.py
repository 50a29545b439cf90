"""The input form of `eden eval`, JSON lines (docs/eval.md)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, model_validator

from eden_memory.demo.conversation import read_lines
from eden_memory.demo.judgement import ExpectedItem, ForbiddenItem
from eden_memory.errors import EdenError

OWN_SET = Path(__file__).parent / "sets" / "own.jsonl"

HINT = "A line is a session, question, expected, forbidden or decision; --format reads public sets (docs/eval.md)."


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


Time = Annotated[datetime, AfterValidator(_aware)]
"""Parse a time; one without a zone is in UTC."""

Outcome = Literal["ADD", "UPDATE", "DELETE", "NONE"]

JudgingName = Literal["own", "longmemeval", "beam"]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    conversation: str = "one"
    """Conversations share no memory; each has an agent of its own."""


class SaidMessage(BaseModel):
    """One message; without `at` it was said a second after the one before it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    text: str
    role: Literal["user", "assistant", "tool", "system", "other"] = "user"
    user: str | None = None
    """The author, if several users take part."""
    at: Time | None = None


class SessionLine(_Line):
    """A session with its users; messages without an author are the first user's."""

    kind: Literal["session"]
    id: str
    at: Time
    users: tuple[str, ...] = ("user",)
    messages: tuple[SaidMessage, ...]


class QuestionLine(_Line):
    """A question, with what is known about its answer."""

    kind: Literal["question"]
    id: str
    text: str
    agent: str | None = None
    """Whose memory is asked, in an application's own memory (`eden reform NAME --eval`); else the conversation."""
    user: str | None = "user"
    session: str | None = None
    """The session in which it is asked; None: the user's last one alone with the agent."""
    at: Time | None = None
    category: str = "other"
    language: str | None = None
    answers: tuple[str, ...] = ()
    """Accepted wordings."""
    choices: tuple[str, ...] = ()
    correct: int | None = None
    """The index of the right choice, from 0."""
    evidence: tuple[str, ...] = ()
    """Ids of the messages that answer it."""
    outdated: tuple[str, ...] = ()
    """Ids of messages that once answered it and no longer do."""
    absent: bool = False
    """Nobody said it: the right answer is that it is not known."""
    contains: bool = False
    """An answer that contains one of `answers` is right; no judge is asked."""
    rubric: tuple[str, ...] = ()
    """What a right answer does; only the judge sees it."""
    judging: JudgingName = "own"
    """Whose way of answering and judging (eden_memory.evals.judging)."""

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        if self.choices and not 0 <= (-1 if self.correct is None else self.correct) < len(self.choices):
            raise ValueError("`correct` is the place of one of the choices, from 0")
        if self.contains and not self.answers:
            raise ValueError("`contains` needs answers")
        if not (self.answers or self.choices or self.evidence or self.absent or self.rubric):
            raise ValueError("a question needs answers, choices, evidence, absent or a rubric")
        if self.judging == "beam" and not self.rubric:
            raise ValueError("`beam` judges by a rubric")
        return self


class ExpectedLine(ExpectedItem, _Line):
    """Something that memory should hold."""

    kind: Literal["expected"]
    messages: tuple[str, ...] = Field((), alias="from")
    why: str = ""


class ForbiddenLine(ForbiddenItem, _Line):
    """Something that no memory of these kinds of scope may hold."""

    kind: Literal["forbidden"]
    messages: tuple[str, ...] = Field((), alias="from")
    why: str = ""


class DecisionLine(_Line):
    """A new fact beside known ones of its scope, and what it means for the first of them."""

    kind: Literal["decision"]
    id: str
    known: Annotated[tuple[str, ...], Field(min_length=1)]
    new: str
    expected: Outcome
    or_: tuple[Outcome, ...] = Field((), alias="or")
    """Other outcomes that count as right."""
    language: str | None = None


class EvalLine(
    RootModel[
        Annotated[
            SessionLine | QuestionLine | ExpectedLine | ForbiddenLine | DecisionLine,
            Field(discriminator="kind"),
        ]
    ]
):
    """Any line."""


@dataclass(frozen=True, slots=True)
class EvalConversation:
    """Sessions that share a memory, and the questions about it."""

    id: str
    sessions: list[SessionLine] = field(default_factory=list[SessionLine])
    questions: list[QuestionLine] = field(default_factory=list[QuestionLine])
    expected: list[ExpectedLine] = field(default_factory=list[ExpectedLine])
    forbidden: list[ForbiddenLine] = field(default_factory=list[ForbiddenLine])
    decisions: list[DecisionLine] = field(default_factory=list[DecisionLine])

    def last_session(self, question: QuestionLine) -> SessionLine | None:
        """Return the session that a question is asked in."""
        if question.session is not None:
            return next((session for session in self.sessions if session.id == question.session), None)
        own = [session for session in self.sessions if session.users == (question.user,)]
        return max(own, key=lambda session: session.at, default=None)


@dataclass(frozen=True, slots=True)
class EvalSet:
    """All conversations of a file."""

    name: str
    conversations: tuple[EvalConversation, ...]
    digest: str
    """Of all lines."""

    @property
    def questions(self) -> list[tuple[EvalConversation, QuestionLine]]:
        """Every question with its conversation."""
        return [(where, question) for where in self.conversations for question in where.questions]


def read_set(path: Path = OWN_SET, limit: int | None = None) -> EvalSet:
    """Read a file; of its conversations the first `limit`. EdenError if it is not of the input form."""
    return eval_set(path.stem, read_lines(path, EvalLine, HINT), limit)


def eval_set(name: str, lines: Iterable[EvalLine], limit: int | None = None) -> EvalSet:
    """Gather lines into conversations; EdenError for an id that is used twice, or a message that there is not."""
    found: dict[str, EvalConversation] = {}
    for line in lines:
        _put(found.setdefault(line.root.conversation, EvalConversation(line.root.conversation)), line.root)
    conversations = tuple(found.values())[:limit]
    if not conversations:
        raise EdenError(f"{name} has no lines", HINT)
    for conversation in conversations:
        _check(conversation)
    text = "\n".join(repr(conversation) for conversation in conversations)
    return EvalSet(name, conversations, sha256(text.encode()).hexdigest()[:16])


def _put(
    to: EvalConversation, line: SessionLine | QuestionLine | ExpectedLine | ForbiddenLine | DecisionLine
) -> None:
    match line:
        case SessionLine():
            to.sessions.append(line)
        case QuestionLine():
            to.questions.append(line)
        case ExpectedLine():
            to.expected.append(line)
        case ForbiddenLine():
            to.forbidden.append(line)
        case DecisionLine():
            to.decisions.append(line)


def _check(conversation: EvalConversation) -> None:
    messages = [message.id for session in conversation.sessions for message in session.messages]
    _refuse_twice(conversation.id, "message", messages)
    _refuse_twice(conversation.id, "session", [session.id for session in conversation.sessions])
    _refuse_twice(conversation.id, "question", [question.id for question in conversation.questions])
    _refuse_twice(conversation.id, "decision", [decision.id for decision in conversation.decisions])
    known = frozenset(messages)
    for question in conversation.questions:
        named = {*question.evidence, *question.outdated}
        if known and not named <= known:
            missing = ", ".join(sorted(named - known))
            raise EdenError(f"{conversation.id}, question {question.id}: there is no message {missing}", HINT)


def _refuse_twice(conversation: str, what: str, ids: Sequence[str]) -> None:
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise EdenError(f"{conversation}: two of its {what}s have the id {twice}", HINT)
