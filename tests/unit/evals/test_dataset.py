"""The input form: what is read, what is refused, what our own set covers, and the converters."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from eden_memory.errors import EdenError
from eden_memory.evals.dataset import eval_set, read_set
from eden_memory.evals.judging import judge_name
from eden_memory.evals.published_sets import Format, converted, write_lines
from tests.evals.conversations import DATA, there

SETS = Path(__file__).parents[2] / "evals" / "sets"
ASKED = "probing_questions/probing_questions.json"
SESSION = {
    "kind": "session",
    "id": "s1",
    "at": "2026-01-01T09:00:00",
    "messages": [{"id": "m1", "text": "I live in Vigo."}],
}
QUESTION = {
    "kind": "question",
    "id": "q1",
    "text": "Where do I live?",
    "answers": ["Vigo"],
    "evidence": ["m1"],
}


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "set.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_lines_of_a_conversation_are_gathered(tmp_path: Path) -> None:
    (found,) = read_set(written(tmp_path, QUESTION, SESSION)).conversations
    assert [session.id for session in found.sessions] == ["s1"]
    assert found.last_session(found.questions[0]) is found.sessions[0]
    assert found.sessions[0].at.tzinfo is not None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"evidence": ["m9"]}, "no message m9"),
        ({"answers": [], "evidence": []}, "needs answers"),
        ({"choices": ["a", "b"], "correct": 2}, "`correct`"),
        ({"nonsense": 1}, "line 2"),
    ],
)
def test_what_is_not_of_the_form_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(EdenError, match=said):
        read_set(written(tmp_path, SESSION, {**QUESTION, **changed}))


def test_an_id_that_is_used_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EdenError, match="have the id q1"):
        read_set(written(tmp_path, SESSION, QUESTION, QUESTION))


def test_our_own_set_covers_what_memory_is_for() -> None:
    dataset = read_set()
    questions = [question for _, question in dataset.questions]
    assert len({question.language for question in questions}) >= 6
    assert {"update", "contradiction", "time", "speaker", "attack", "absent", "private"} <= {
        question.category for question in questions
    }
    assert any(len(session.users) > 1 for where in dataset.conversations for session in where.sessions)
    assert sum(len(where.forbidden) for where in dataset.conversations) >= 8
    decisions = [case for where in dataset.conversations for case in where.decisions]
    assert {case.expected for case in decisions} == {"ADD", "UPDATE", "DELETE", "NONE"}
    assert len({case.language for case in decisions}) >= 6


LOCOMO: list[dict[str, Any]] = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ana",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"dia_id": "D1:1", "speaker": "Ana", "text": "I adopted a cat.", "blip_caption": "a cat"}
            ],
        },
        "qa": [
            {"question": "What did Ana adopt?", "answer": "a cat", "evidence": ["D1:1"], "category": 4},
            {"question": "Which dog?", "adversarial_answer": "x", "evidence": [], "category": 5},
        ],
    }
]
LONGMEMEVAL = [
    {
        "question_id": "e47",
        "question_type": "knowledge-update",
        "question": "How many?",
        "answer": 4,
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["a", "b"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 02:57"],
        "haystack_sessions": [
            [{"role": "user", "content": "I have 3."}],
            [
                {"role": "user", "content": "Now 4.", "has_answer": True},
                {"role": "assistant", "content": "Good."},
            ],
        ],
    }
]
FACTS = [
    {
        "context": "Here is a list of facts:\n0. Rome is in Italy.\n1. Rome is in Spain.",
        "questions": ["Where is Rome?"],
        "answers": [["Spain"]],
        "metadata": {"source": "factconsolidation_sh_6k"},
    }
]


def test_locomo_keeps_speakers_evidence_and_what_nobody_said(tmp_path: Path) -> None:
    path = tmp_path / "locomo10.json"
    path.write_text(json.dumps(LOCOMO))
    (found,) = eval_set("l", converted(path, "locomo")).conversations
    assert found.sessions[0].messages[0].text == "Ana: I adopted a cat. [shows a cat]"
    assert [(asked.category, asked.evidence, asked.absent) for asked in found.questions] == [
        ("single-hop", ("D1:1",), False),
        ("adversarial", (), True),
    ]


def test_longmemeval_is_a_conversation_for_each_question(tmp_path: Path) -> None:
    path = tmp_path / "longmemeval_s.json"
    path.write_text(json.dumps(LONGMEMEVAL))
    (found,) = eval_set("l", converted(path, "longmemeval")).conversations
    assert [session.at.day for session in found.sessions] == [20, 21]
    assert (found.questions[0].answers, found.questions[0].evidence) == (("4",), ("1.0",))


def test_personamem_is_multiple_choice_over_the_beginning_of_its_context(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "You are told of Kai."},
        {"role": "user", "content": "User: I like jazz."},
        {"role": "assistant", "content": "Assistant: Noted."},
        {"role": "user", "content": "User: I never liked jazz."},
    ]
    (tmp_path / "shared_contexts_32k.jsonl").write_text(json.dumps({"abc": messages}))
    with (tmp_path / "questions_32k.csv").open("w", newline="") as file:
        row = {
            "question_id": "7",
            "question_type": "recall",
            "user_question_or_message": "What music?",
            "correct_answer": "(b)",
            "all_options": str(["(a) it's rock", "(b) jazz"]),
            "shared_context_id": "abc",
            "end_index_in_shared_context": 3,
        }
        table = csv.DictWriter(file, row)
        table.writeheader()
        table.writerow(row)
    (found,) = eval_set("p", converted(tmp_path / "questions_32k.csv", "personamem")).conversations
    assert [message.text for message in found.sessions[0].messages] == [
        "User: I like jazz.",
        "Assistant: Noted.",
    ]
    assert (found.questions[0].choices[1], found.questions[0].correct) == ("(b) jazz", 1)


def test_factconsolidation_asks_for_a_contained_answer_and_its_lines_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "conflict.json"
    path.write_text(json.dumps(FACTS))
    lines = converted(path, "factconsolidation")
    assert write_lines(tmp_path / "out.jsonl", lines) == 2
    (found,) = read_set(tmp_path / "out.jsonl").conversations
    assert [message.text for message in found.sessions[0].messages] == [
        "Rome is in Italy.",
        "Rome is in Spain.",
    ]
    assert found.questions[0].contains


def test_longmemeval_judges_preferences_and_what_nobody_said_by_what_the_makers_wrote() -> None:
    found = eval_set("l", converted(SETS / "longmemeval_s.json", "longmemeval"))
    asked = {question.id: question for _, question in found.questions}
    assert judge_name(asked["tm01"]) == "longmemeval-answer/1"
    assert judge_name(asked["tm06"]) == "longmemeval-update/1"
    assert (asked["tm03"].answers, judge_name(asked["tm03"])) == ((), "longmemeval-preference/1")
    assert (asked["tm07_abs"].absent, judge_name(asked["tm07_abs"])) == (True, "longmemeval-abstention/1")
    assert (asked["tm04"].evidence, asked["tm04"].category) == (("0.0", "2.0"), "multi-session")


def test_beam_is_read_from_its_folders_and_from_rows_of_its_table(tmp_path: Path) -> None:
    (found,) = eval_set("b", converted(SETS / "beam", "beam")).conversations
    assert [session.at.month for session in found.sessions] == [3, 4, 5]
    asked = {question.category: question for question in found.questions}
    assert len(asked) == 10
    assert (asked["knowledge-update"].evidence, asked["knowledge-update"].outdated) == (("12",), ("6",))
    assert asked["event-ordering"].evidence == ("0", "10", "16")
    assert asked["abstention"].absent
    chat = json.loads((SETS / "beam/1/chat.json").read_text())
    row = {
        "conversation_id": "1",
        "chat": [[turn for group in batch["turns"] for turn in group] for batch in chat],
        "probing_questions": repr(json.loads((SETS / "beam/1" / ASKED).read_text())),
    }
    table = tmp_path / "100K.jsonl"
    table.write_text(json.dumps(row))
    assert eval_set("b", converted(table, "beam")).conversations == (found,)


def of_10m(folder: Path) -> Path:
    (folder / "1" / ASKED).parent.mkdir(parents=True)
    (folder / "1" / ASKED).write_text("{}")
    (folder / "1" / "chat.json").write_text(json.dumps([{"plan-1": []}]))
    return folder


@pytest.mark.parametrize(
    ("form", "written", "said"),
    [
        ("longmemeval", [{**LONGMEMEVAL[0], "haystack_dates": None}], "not built as longmemeval"),
        ("longmemeval", [*LONGMEMEVAL, {"question_id": "2"}], "row 2 has no question_type"),
        ("longmemeval", "no JSON", "neither JSON nor JSON lines"),
        ("locomo", [{"sample_id": "1"}], "row 1 has no conversation or sessions"),
        ("beam", [{"chat": ""}], "row 1 has no probing_questions"),
        ("beam", of_10m, "chats of 10M have another form"),
        ("beam", Path.mkdir, "no chat"),
    ],
)
def test_what_is_not_built_so_is_refused_in_one_sentence_with_the_way_out(
    tmp_path: Path, form: Format, written: Any, said: str
) -> None:
    path = tmp_path / "file"
    if callable(written):
        written(path)
    else:
        path.write_text(written if isinstance(written, str) else json.dumps(written))
    with pytest.raises(EdenError, match=said) as refused:
        converted(path, form)
    assert refused.value.hint.startswith("Name ")
    assert str(refused.value).splitlines()[1:] == [refused.value.hint]


@pytest.mark.skipif(not there(), reason="the conversations are not part of the project")
def test_the_development_conversations_are_read() -> None:
    dataset = eval_set("dev", converted(DATA, "locomo"))
    assert len(dataset.conversations) == 5
    assert sum(bool(question.evidence) for _, question in dataset.questions) > 500
