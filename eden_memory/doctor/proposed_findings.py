"""What a proposed mapping means for memory, and what follows from a field that was not found. Pure."""

from eden_memory.doctor.finding import Finding
from eden_memory.doctor.proposing import ID, Proposal
from eden_memory.doctor.proposing_sessions import SessionsProposal

NOT_FOUND = {
    "session_id": Finding(
        "session",
        "fail",
        "no field names the session: no document can become a message",
        "Write the session's id (text, number, ObjectId or UUID) with each message.",
    ),
    "content": Finding(
        "text",
        "fail",
        "no field holds text or a list of text parts: nothing can be remembered",
        "Write the text with each message. JSON in a text field cannot be mapped.",
    ),
    "role": Finding(
        "role",
        "warn",
        "no field says who speaks: every message counts as `other`, with half the weight of a user's, and no message "
        "is taken as a user's own words",
        "Write the role with each message, as text: `user`, `assistant`, `tool` or `system`.",
    ),
    "user_id": Finding(
        "author",
        "warn",
        "no field names the author: no user gets a memory of their own, and users of a session cannot be told apart",
        "Write the user's id with each message of a user.",
    ),
    "created_at": Finding(
        "time",
        "warn",
        "no field says when a message was written: existing messages are read in the order of their ids, and count "
        "as written when they were read",
        "Write a date, ISO text, or seconds or milliseconds since 1970 with each message.",
    ),
}

TIME_OF_IDS = Finding(
    "time",
    "warn",
    "no field says when a message was written: the time in its ObjectId is taken, the second in which the message "
    "was inserted; imported messages count as written when they were imported",
    "If a message may be older than its document, write a date, ISO text, or seconds since 1970 with it.",
)


def findings_of(proposal: Proposal) -> list[Finding]:
    """One for each field of a message that was not found, and for roles that are not clear."""
    found = [NOT_FOUND[name] for name, path in proposal.paths.items() if path is None]
    if proposal.created_at == ID:
        found.append(TIME_OF_IDS)
    if proposal.true_or_false is not None:
        what = f"`{proposal.true_or_false}` says who speaks as true or false, which cannot be mapped"
        found.append(Finding("role", "warn", what, "Write the role as text in a field of its own."))
    if proposal.unclear:
        listed = ", ".join(f"{name!r} ({count})" for name, count in proposal.unclear.items())
        what = f"not clear what these mean: {listed}; they count as `other`"
        hint = 'Add what you know to `roles`: "user", "assistant", "tool", "system" or "other".'
        found.append(Finding("roles", "warn", what, hint))
    if proposal.without_role:
        what = f"{proposal.without_role} of the documents have no role: they count as `other`"
        found.append(Finding("roles", "warn", what))
    return found


def findings_of_sessions(sessions: SessionsProposal) -> list[Finding]:
    """What the collection of sessions says, and what follows from what it lacks."""
    what = f"`{sessions.collection}` describes {sessions.described} of the {sessions.sampled} sessions looked for"
    found = [Finding("sessions", "ok", what)]
    if sessions.described < sessions.sampled:
        hint = "Leave [sessions] out, unless every session is to get a document."
        waits = f"{what}; messages of the others form no memory before there is one"
        found = [Finding("sessions", "warn", waits, hint)]
    if sessions.users is None:
        what = "no field lists the ids of a session's users: users are the authors of its messages"
        if sessions.no_ids is not None:
            what = f"`{sessions.no_ids}` is no list of ids: a session's users are the authors of its messages"
        found.append(
            Finding("sessions", "warn", what, "Write the users' ids as a list: it also says who only reads.")
        )
    return found


def finding_of_listed(path: str) -> Finding:
    """Of documents that each hold a whole session."""
    return Finding(
        "messages",
        "fail",
        f"`{path}` lists several messages in each document: a message has to be a document of its own",
        "Write each message as a document, with the id of its session.",
    )
