"""The input form of `eden eval`, JSON lines (docs/eval.md), and converters from the files that datasets come in."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, ValidationError, model_validator

from eden_memory.demo.conversation import read_lines
from eden_memory.demo.judgement import ExpectedItem, ForbiddenItem
from eden_memory.errors import EdenError

OWN_SET = Path(__file__).parent / "sets" / "own.jsonl"

HINT = "A line is a session, question, expected, forbidden or decision (docs/eval.md)."


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


Time = Annotated[datetime, AfterValidator(_aware)]
"""Parse a time; one without a zone is in UTC."""

Outcome = Literal["ADD", "UPDATE", "DELETE", "NONE"]


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

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        if self.choices and not 0 <= (-1 if self.correct is None else self.correct) < len(self.choices):
            raise ValueError("`correct` is the place of one of the choices, from 0")
        if self.contains and not self.answers:
            raise ValueError("`contains` needs answers")
        if not (self.answers or self.choices or self.evidence or self.absent):
            raise ValueError("a question needs answers, choices, evidence or absent")
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


Format = Literal["lines", "locomo", "longmemeval", "personamem", "factconsolidation"]

Row = dict[str, Any]

BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)
"""The time of the first message, for datasets that name no times."""

LOCOMO_CATEGORIES: Mapping[int, str] = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "adversarial",
}

NUMBERED = re.compile(r"^\s*(\d+)\.\s+(.+)$", re.MULTILINE)

PER_SESSION = 50


def converted(path: Path, form: Format) -> list[EvalLine]:
    """Return a dataset's file as lines; EdenError if it is not in that dataset's format."""
    try:
        return [EvalLine.model_validate(row) for row in CONVERTERS[form](path)]
    except OSError as error:
        raise EdenError(f"{path} cannot be read: {error.strerror}", f"Name a file of {form}.") from None
    except (ValidationError, LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"{path} is not built as {form} is ({type(error).__name__})"
        raise EdenError(what, "docs/eval.md names the files that can be read.") from None


def write_lines(path: Path, lines: Iterable[EvalLine]) -> int:
    """Write JSON lines; return how many."""
    rows = [line.model_dump_json(by_alias=True, exclude_defaults=True, exclude_none=True) for line in lines]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return len(rows)


def locomo(path: Path) -> Iterator[Row]:
    """Read `locomo10.json`, or a list of {id, sessions, questions}; both speakers' words are one user's memory."""
    for number, sample in enumerate(_json(path)):
        name = str(sample.get("sample_id") or sample.get("id") or number)
        sessions = (
            sample["sessions"] if "sessions" in sample else list(_locomo_sessions(sample["conversation"]))
        )
        known: set[str] = set()
        for session in sessions:
            turns = [_locomo_turn(turn) for turn in session["turns"]]
            known |= {turn["id"] for turn in turns}
            at = datetime.strptime(session["date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
            yield _session(name, f"s{session['session']}", at, turns)
        for at, asked in enumerate(sample.get("questions") or sample["qa"]):
            yield from _locomo_question(name, at, asked, known)


def _locomo_sessions(conversation: Row) -> Iterator[Row]:
    numbers = sorted(
        int(key.removeprefix("session_")) for key in conversation if re.fullmatch(r"session_\d+", key)
    )
    for number in numbers:
        date_time = conversation[f"session_{number}_date_time"]
        yield {"session": number, "date_time": date_time, "turns": conversation[f"session_{number}"]}


def _locomo_turn(turn: Row) -> Row:
    """The speaker's name stands in the text: whoever remembers knows whom it is about."""
    caption = turn.get("image_caption") or turn.get("blip_caption")
    shown = f" [shows {caption}]" if caption else ""
    return {"id": turn.get("id") or turn["dia_id"], "text": f"{turn['speaker']}: {turn['text']}{shown}"}


def _locomo_question(name: str, at: int, asked: Row, known: set[str]) -> Iterator[Row]:
    category = asked["category"]
    category = LOCOMO_CATEGORIES.get(category, category)
    evidence = [part for given in asked.get("evidence") or () for part in re.findall(r"D\d+:\d+", given)]
    absent = category == "adversarial"
    row = {
        "kind": "question",
        "conversation": name,
        "id": f"q{at}",
        "text": asked["question"],
        "category": category,
        "answers": [] if absent or asked.get("answer") is None else [str(asked["answer"])],
        "evidence": [] if absent else [message for message in evidence if message in known],
        "absent": absent,
    }
    if row["answers"] or row["evidence"] or absent:
        yield row


def longmemeval(path: Path) -> Iterator[Row]:
    """Read `longmemeval_s.json` (or `_m`, `_oracle`): a conversation for each question."""
    for sample in _json(path):
        name, evidence = sample["question_id"], list[str]()
        dated = zip(sample["haystack_session_ids"], sample["haystack_dates"], strict=True)
        for number, ((session, date), turns) in enumerate(
            zip(dated, sample["haystack_sessions"], strict=True)
        ):
            messages = [
                {"id": f"{number}.{at}", "role": turn["role"], "text": turn["content"]}
                for at, turn in enumerate(turns)
            ]
            evidence += [f"{number}.{at}" for at, turn in enumerate(turns) if turn.get("has_answer")]
            yield _session(name, f"{number}-{session}", _longmemeval_time(date), messages)
        absent = name.endswith("_abs")
        yield {
            "kind": "question",
            "conversation": name,
            "id": name,
            "text": sample["question"],
            "at": _longmemeval_time(sample["question_date"]),
            "category": "abstention" if absent else sample["question_type"],
            "answers": [] if absent else [str(sample["answer"])],
            "evidence": [] if absent else evidence,
            "absent": absent,
        }


def _longmemeval_time(date: str) -> datetime:
    """`2023/05/20 (Sat) 02:21`."""
    return datetime.strptime(re.sub(r"\s*\(\w+\)", "", date), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


def personamem(path: Path) -> Iterator[Row]:
    """Read `questions_32k.csv` beside `shared_contexts_32k.jsonl` (or 128k, 1M): multiple choice, no judge.

    A question is asked of its context's first messages: each such beginning is a conversation.
    """
    contexts: dict[str, list[Row]] = {}
    beside = path.with_name(path.name.replace("questions", "shared_contexts")).with_suffix(".jsonl")
    for line in beside.read_text(encoding="utf-8").splitlines():
        contexts |= json.loads(line)
    written: set[str] = set()
    with path.open(encoding="utf-8", newline="") as file:
        for at, asked in enumerate(csv.DictReader(file)):
            end, context = int(asked["end_index_in_shared_context"]), asked["shared_context_id"]
            name = f"{context[:12]}-{end}"
            if name not in written:
                written.add(name)
                yield from _personamem_sessions(name, contexts[context][:end])
            yield _personamem_question(name, at, asked)


def _personamem_sessions(name: str, messages: list[Row]) -> Iterator[Row]:
    """A system message begins a session; its persona is told to no memory."""
    session, said = 0, list[Row]()
    for at, message in enumerate([*messages, {"role": "system", "content": ""}]):
        if message["role"] != "system":
            said.append({"id": str(at), "role": message["role"], "text": message["content"]})
        elif said:
            yield _session(name, f"s{session}", BEGINNING + timedelta(days=session), said)
            session, said = session + 1, []


def _personamem_question(name: str, at: int, asked: Row) -> Row:
    options = asked["all_options"]
    try:
        choices = json.loads(options)
    except ValueError:  # written by Python
        choices = [
            part or other
            for part, other in re.findall(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", options)
        ]
    letter = re.sub(r"[^a-z]", "", asked["correct_answer"].lower())
    return {
        "kind": "question",
        "conversation": name,
        "id": asked.get("question_id") or f"q{at}",
        "text": asked["user_question_or_message"],
        "category": asked["question_type"],
        "choices": choices,
        "correct": ord(letter) - ord("a"),
    }


def factconsolidation(path: Path) -> Iterator[Row]:
    """Read MemoryAgentBench's Conflict_Resolution rows (JSON or JSON lines): an answer that contains one is right.

    Facts are numbered, a later one overrules an earlier one; each is a message.
    """
    for number, sample in enumerate(_json(path)):
        metadata: Row = sample.get("metadata") or {}
        name = str(metadata.get("source") or number) + f"-{number}"
        facts = [{"id": found[0], "text": found[1].strip()} for found in NUMBERED.findall(sample["context"])]
        for at in range(0, len(facts), PER_SESSION):
            said = BEGINNING + timedelta(days=at // PER_SESSION)
            yield _session(name, f"s{at // PER_SESSION}", said, facts[at : at + PER_SESSION])
        for at, (question, answers) in enumerate(zip(sample["questions"], sample["answers"], strict=True)):
            yield {
                "kind": "question",
                "conversation": name,
                "id": f"q{at}",
                "text": question,
                "category": "conflict",
                "answers": [answers] if isinstance(answers, str) else answers,
                "contains": True,
            }


def _session(conversation: str, name: str, at: datetime, messages: list[Row]) -> Row:
    return {"kind": "session", "conversation": conversation, "id": name, "at": at, "messages": messages}


def _json(path: Path) -> list[Row]:
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines() if line.strip()]


CONVERTERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    "locomo": locomo,
    "longmemeval": longmemeval,
    "personamem": personamem,
    "factconsolidation": factconsolidation,
}
