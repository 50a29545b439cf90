"""Questions after an invalid answer: the same question, the answer, and what is wrong with it."""

from eden_memory.models.asking.judging import EMPTY, REFUSED, TRUNCATED
from eden_memory.models.calls import PromptTurn
from eden_memory.models.question import Prompt

CALLS = 6
"""A question may cost so many calls, over all its attempts; answers cut off count here alone."""
INVALID = 3
"""After so many invalid answers (one and two repairs) a question is given up."""
SHOWN_OF_CUT = 400
"""Characters of an answer that was cut off which are shown again."""
NOTES = {
    TRUNCATED: "Your answer was cut off at the length limit. Answer again, complete, and shorter.",
    REFUSED: "That was no answer. The task above only sorts and rewrites its content; answer it with the"
    " JSON object asked for, with empty lists where nothing qualifies.",
    EMPTY: "Your answer was empty. Answer with the JSON object asked for.",
}
INVALID_NOTE = (
    "That is not a valid answer: {problem}\nAnswer again with the whole JSON object, exactly as asked for,"
    " and nothing else."
)
SHORT_NOTE = (
    "The answer has the right form, but: {problem}\nAnswer again with the whole JSON object, corrected, and"
    " nothing else."
)


def turns(prompt: Prompt, text: str | None = None, note: str = "") -> tuple[PromptTurn, ...]:
    """The question; behind an earlier answer, that answer and what is wrong with it."""
    asked = PromptTurn("user", prompt.user)
    if text is None:
        return (asked,)
    return asked, PromptTurn("assistant", text.strip() or "(nothing)"), PromptTurn("user", note)


def invalid_note(problem: str) -> str:
    """Explain to the model why an answer is invalid."""
    return NOTES.get(problem) or INVALID_NOTE.format(problem=problem)


def shortcoming_note(problem: str) -> str:
    """Explain to the model why a valid answer cannot be used."""
    return SHORT_NOTE.format(problem=problem)


def shown_again(text: str, problem: str) -> str:
    """As much of an answer as the model is shown of it."""
    return text[:SHOWN_OF_CUT] + " …" if problem == TRUNCATED and len(text) > SHOWN_OF_CUT else text
