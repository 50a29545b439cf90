"""Public datasets: converters from the files that their makers publish to the input form of `eden eval`."""

import csv
import json
import re
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from eden_memory.errors import EdenError
from eden_memory.evals.dataset import EvalLine

Format = Literal["lines", "locomo", "longmemeval", "beam", "personamem", "factconsolidation"]

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

LONGMEMEVAL_FIELDS = (
    "question_id",
    "question_type",
    "question",
    "answer",
    "question_date",
    "haystack_session_ids",
    "haystack_dates",
    "haystack_sessions",
)

NUMBERED = re.compile(r"^\s*(\d+)\.\s+(.+)$", re.MULTILINE)

PER_SESSION = 50


def converted(path: Path, form: Format) -> list[EvalLine]:
    """Return a dataset's files as lines; EdenError if they are not in that dataset's format."""
    try:
        return [EvalLine.model_validate(row) for row in CONVERTERS[form](path)]
    except OSError as error:
        raise EdenError(
            f"{error.filename or path} cannot be read: {error.strerror}", _way_out(form)
        ) from None
    except KeyError as error:
        raise EdenError(f"{path} is not built as {form} is: no {error.args[0]}", _way_out(form)) from None
    except (ValidationError, LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"{path} is not built as {form} is ({type(error).__name__})"
        raise EdenError(what, _way_out(form)) from None


def _way_out(form: Format) -> str:
    return f"Name {FILES[form]}, as its makers publish it."


def write_lines(path: Path, lines: Iterable[EvalLine]) -> int:
    """Write JSON lines; return how many."""
    rows = [line.model_dump_json(by_alias=True, exclude_defaults=True, exclude_none=True) for line in lines]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return len(rows)


def locomo(path: Path) -> Iterator[Row]:
    """Read `locomo10.json`, or a list of {id, sessions, questions}; both speakers' words are one user's memory."""
    for number, sample in enumerate(_rows(path, "locomo", ("conversation", "sessions"), ("qa", "questions"))):
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
    """Read `longmemeval_s.json` (or `_s_cleaned`, `_m`, `_oracle`): a conversation for each question."""
    for sample in _rows(path, "longmemeval", *((field,) for field in LONGMEMEVAL_FIELDS)):
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
        by_rubric = absent or sample["question_type"] == "single-session-preference"
        yield {
            "kind": "question",
            "conversation": name,
            "id": name,
            "text": sample["question"],
            "at": _longmemeval_time(sample["question_date"]),
            "category": "abstention" if absent else sample["question_type"],
            "answers": [] if by_rubric else [str(sample["answer"])],
            "rubric": [str(sample["answer"])] if by_rubric else [],
            "evidence": [] if absent else evidence,
            "absent": absent,
            "judging": "longmemeval",
        }


def _longmemeval_time(date: str) -> datetime:
    """`2023/05/20 (Sat) 02:21`."""
    return datetime.strptime(re.sub(r"\s*\(\w+\)", "", date), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


def beam(path: Path) -> Iterator[Row]:
    """Read a folder of BEAM's `chats` (`chats/100K`, `chats/1M`, or one chat of it), or its rows as JSON lines.

    A chat is a conversation, each of its batches a session; a rubric judges every question.
    """
    for name, batches, asked in _beam_chats(path):
        known, at = set[str](), BEGINNING
        for number, turns in enumerate(batches):
            at = next((_beam_time(turn["time_anchor"]) for turn in turns if turn.get("time_anchor")), at)
            said = [{"id": str(turn["id"]), "role": turn["role"], "text": turn["content"]} for turn in turns]
            known |= {message["id"] for message in said}
            yield _session(name, f"s{number}", at, said)
        for category, questions in asked.items():
            for number, question in enumerate(questions):
                yield _beam_question(name, f"{category}-{number}", at, category, question, known)


def _beam_chats(path: Path) -> Iterator[tuple[str, list[list[Row]], Row]]:
    """Yield each chat's name, the messages of its batches, and its questions by category."""
    if not path.is_dir():
        for number, row in enumerate(_rows(path, "beam", ("chat",), ("probing_questions",))):
            asked = row["probing_questions"]
            questions = literal_eval(asked) if isinstance(asked, str) else asked
            yield str(row.get("conversation_id", number)), _beam_batches(path, row["chat"]), questions
        return
    asked = Path("probing_questions", "probing_questions.json")
    folders = (
        [path] if (path / asked).exists() else [found.parent.parent for found in path.glob(f"*/{asked}")]
    )
    if not folders:
        raise EdenError(f"{path} holds no chat with its {asked}", _way_out("beam"))
    for folder in sorted(folders, key=lambda found: (len(found.name), found.name)):
        shortened = (
            folder / "chat_trunecated.json"
        )  # the makers' spelling: where it is, they ask about this one
        chat = _read_json(shortened if shortened.exists() else folder / "chat.json", "beam")
        yield folder.name, _beam_batches(folder, chat), _read_json(folder / asked, "beam")


def _beam_batches(path: Path, chat: list[Any]) -> list[list[Row]]:
    """Return the messages of each batch: groups of messages in a file, one list in a row."""
    batches: list[list[Row]] = []
    for batch in chat:
        if isinstance(batch, list):
            batches.append(batch)  # pyright: ignore[reportUnknownArgumentType]
        elif "turns" in batch:
            batches.append([turn for group in batch["turns"] for turn in group])
        else:
            what = f"{path} is not built as beam is: a batch has no turns (chats of 10M have another form)"
            raise EdenError(what, _way_out("beam"))
    return batches


def _beam_question(name: str, question: str, at: datetime, category: str, asked: Row, known: set[str]) -> Row:
    sources: Any = asked.get("source_chat_ids")
    evidence, outdated = _numbers(sources), set[str]()
    if category == "knowledge_update":
        evidence = _numbers(sources["updated_info"])
        outdated = _numbers(sources["original_info"]) - evidence
    return {
        "kind": "question",
        "conversation": name,
        "id": question,
        "text": asked["question"],
        "at": at,
        "category": category.replace("_", "-"),
        "evidence": sorted(evidence & known),
        "outdated": sorted(outdated & known),
        "absent": category == "abstention",
        "rubric": asked["rubric"],
        "judging": "beam",
    }


def _numbers(sources: Any) -> set[str]:
    """Return the ids in a number, a list or an object, however deep."""
    if isinstance(sources, int | str):
        return {str(sources)}
    if isinstance(sources, dict):
        return _numbers(list(sources.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    parts: list[Any] = sources or []
    return {found for part in parts for found in _numbers(part)}


def _beam_time(anchor: str) -> datetime:
    """`March-15-2024`."""
    return datetime.strptime(anchor, "%B-%d-%Y").replace(tzinfo=UTC)


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
    for number, sample in enumerate(
        _rows(path, "factconsolidation", ("context",), ("questions",), ("answers",))
    ):
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


def _rows(path: Path, form: Format, *fields: tuple[str, ...]) -> list[Row]:
    """Return the rows of a JSON list or JSON lines; EdenError for one without a field (any of each tuple will do)."""
    found = _read_json(path, form)
    rows: list[Any] = found if isinstance(found, list) else [found]  # pyright: ignore[reportUnknownVariableType]
    for number, row in enumerate(rows, 1):
        for names in fields:
            if not isinstance(row, dict) or not any(name in row for name in names):
                what = f"{path} is not built as {form} is: row {number} has no {' or '.join(names)}"
                raise EdenError(what, _way_out(form))
    return rows


def _read_json(path: Path, form: Format) -> Any:
    """Return the value of a JSON file, or the list of those of JSON lines; EdenError for anything else."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        try:
            return json.loads(text)
        except ValueError:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        raise EdenError(f"{path} is neither JSON nor JSON lines", _way_out(form)) from None


CONVERTERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    "locomo": locomo,
    "longmemeval": longmemeval,
    "beam": beam,
    "personamem": personamem,
    "factconsolidation": factconsolidation,
}

FILES: Mapping[str, str] = {
    "locomo": "locomo10.json",
    "longmemeval": "longmemeval_s.json, _s_cleaned, _m or _oracle",
    "beam": "a folder of BEAM's chats (chats/100K, 500K or 1M) or its rows as JSON lines",
    "personamem": "questions_32k.csv beside shared_contexts_32k.jsonl (or 128k, 1M)",
    "factconsolidation": "MemoryAgentBench's Conflict_Resolution rows, as JSON or JSON lines",
}
