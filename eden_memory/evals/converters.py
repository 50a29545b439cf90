"""Converters from the files that datasets come in to the input form (docs/eval.md says where each is found)."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from eden_memory.errors import EdenError
from eden_memory.evals.dataset import EvalLine

Format = Literal["lines", "locomo", "longmemeval", "personamem", "factconsolidation"]
Row = dict[str, Any]
BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)
"""Of datasets that name no times."""
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
