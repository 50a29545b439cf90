"""The table: every operation on memory that several doors have, one row each.

HTTP routes with OpenAPI, MCP tools, commands and the page docs/reference/operations.md are made from these rows. Most
calls are methods of the service (reading.py, correcting.py, writing.py, streams.py, undoing.py); those below check or
read what a door is given.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from pydantic import Field

from eden_memory.access.admission_store import demand_operator
from eden_memory.app.memory import ProcessMemory
from eden_memory.errors import Invalid
from eden_memory.memory.memory_views import Added, WindowAsked
from eden_memory.operations import parameters as p
from eden_memory.operations import webhook_calls as w
from eden_memory.operations.admitted_call import AdmittedCall, AgentCalls
from eden_memory.operations.audit_calls import AllAgents, Audited, AuditPreview, RetireKind
from eden_memory.operations.operation import Operation, Tool
from eden_memory.receipts.receipt import CheckedReceipt, Receipt
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.unpoison.attack_rules import UndoPreview

What = Annotated[
    Forgettable, Field(description="what it is; a user is forgotten with all agents: DELETE /v1/users/{user}")
]


async def add(
    call: AdmittedCall,
    text: p.Text | None = None,
    messages: Annotated[list[p.Turn] | None, Field(min_length=1, max_length=200)] = None,
    scope: p.AddedScope = None,
    at: p.At = None,
    verbatim: p.Verbatim = False,
    kind: p.AddedKind = "fact",
) -> Added:
    """Remember a text, or messages."""
    if (text is None) == (messages is None):
        raise Invalid("give either text or messages")
    given = text or [turn.model_dump(exclude_none=True) for turn in messages or ()]
    return await call.service.add(given, **call.named, scope=scope, at=at, verbatim=verbatim, kind=kind)


async def forget(call: AdmittedCall, what: What, target: p.Target) -> str:
    """Forget something, for ever."""
    return await call.service.forget(what, await call.forget_target(what, target), **call.named)


async def preview_undo(call: AdmittedCall, cause: p.Cause, target: p.CauseTarget) -> UndoPreview:
    """Show what undoing an attack would change."""
    return await call.service.preview_undo(cause, await call.undo_target(cause, target), **call.named)


async def undo(call: AdmittedCall, cause: p.Cause, target: p.CauseTarget, preview: p.Preview) -> str:
    """Undo an attack, for ever."""
    return await call.service.undo(cause, await call.undo_target(cause, target), preview, **call.named)


async def form(call: AdmittedCall, if_due: p.IfDue = False) -> WindowAsked:
    """Form what is pending in the session."""
    if if_due:
        return await call.service.maybe_form_memories(call.session)
    return WindowAsked(await call.service.form_now(call.session), formed=True)


async def list_streams(call: AdmittedCall) -> list[p.StreamView]:
    """Return the agent's streams."""
    return [p.StreamView.model_validate(stream) for stream in await call.service.list_streams()]


async def get_stream(call: AdmittedCall, scope: p.ScopeLabel) -> p.StreamView:
    """Return a scope's stream."""
    return p.StreamView.model_validate(await call.service.get_stream(scope))


async def set_stream(call: AdmittedCall, scope: p.ScopeLabel, fields: p.StreamFields) -> p.StreamView:
    """Set fields of a scope's stream, or make it."""
    given = fields.model_dump(exclude_unset=True)
    return p.StreamView.model_validate(await call.service.set_stream(scope, **given))


async def receipt(call: AdmittedCall, request_id: p.RequestId) -> Receipt:
    """Return the signed receipt of a request to forget or undo."""
    from eden_memory.operations.receipt_calls import receipt_of  # noqa: PLC0415 - loads Kafka's client

    return await receipt_of(call.service.memory, call.caller, request_id)


async def verify_receipt(
    call: AdmittedCall,
    receipt: Annotated[dict[str, Any], Field(description="exactly as it was returned")],
    topics: p.InTopics = True,
) -> CheckedReceipt:
    """Check a receipt."""
    from eden_memory.operations.receipt_calls import checked_receipt  # noqa: PLC0415 - the same

    text = orjson.dumps(receipt)
    return await checked_receipt(call.service.memory, call.caller, text, in_topics=topics)


async def add_webhook(call: AdmittedCall, url: w.Url, on: w.On, agents: w.Agents = None) -> w.AddedWebhook:
    """Add a webhook."""
    demand_operator(call.caller, w.WHAT)
    return await w.add_webhook(call.service.memory, url, on, agents, asked_by=call.caller.name)


async def list_webhooks(call: AdmittedCall) -> list[w.WebhookView]:
    """Return all webhooks."""
    demand_operator(call.caller, w.WHAT)
    return await w.list_webhooks(call.service.memory)


async def remove_webhook(call: AdmittedCall, webhook_id: w.WebhookId) -> w.RemovedWebhook:
    """Remove a webhook."""
    demand_operator(call.caller, w.WHAT)
    return await w.remove_webhook(call.service.memory, webhook_id)


async def audit(
    call: AdmittedCall, all_agents: AllAgents = False, retire: RetireKind = None, preview: AuditPreview = None
) -> Audited:
    """Audit facts of the agent, of one user, or of all agents."""
    demand_operator(call.caller, "an audit")
    if call.session is not None:
        raise Invalid("an audit takes no session", "Name a user, or nobody.")
    return await call.service.audit(user=call.user, all_agents=all_agents, retire=retire, preview=preview)


ASKED = "accepted: it is carried out in the background; the history keeps what stood there before"

OPERATIONS = (
    Operation(
        name="context",
        call=AgentCalls.get_memory_context,
        right="read",
        answer=p.ContextText,
        tag="context",
        summary="The XML for the agent's prompt",
        words="Return the user's context in the session, 204 if it is empty; its ETag changes with its text.",
        routes=["GET /context"],
        tool=Tool(
            "get_memory_context",
            "What is known here, ready for a prompt: of the agent's work, the group, the user and this "
            "conversation.\n\nRead it when a conversation begins; `search_facts` finds what does not stand in "
            "it.",
            "reads",
            leaves_out=["scopes", "force_refresh"],
        ),
        commands=["context"],
        resources=["memory://context", "memory://context/{session}", "memory://context/{session}/{user}"],
    ),
    Operation(
        name="search",
        call=AgentCalls.explain_search,
        right="read",
        python=["search_facts", "explain_search", "offers_search_tool"],
        offered=True,
        tag="facts",
        summary="Search facts",
        words="The facts nearest to any of up to three queries, best first. Reads only, so the right `read` is "
        "enough.",
        routes=["POST /search"],
        tool=Tool(
            "search_facts",
            "Search long-term memory for facts: names, numbers, dates, decisions, things people said "
            "earlier.\n\nUse it whenever the answer may depend on earlier conversations. Facts come back best "
            "first, each with the time when it was said: where two contradict each other, the newer one counts.",
            "reads",
            leaves_out=["asked_at", "recency_weight", "score_threshold"],
        ),
        commands=["search"],
        examples={"queries": ["Where does Ada work?"], "top_k": 5},
    ),
    Operation(
        name="list facts",
        call=AgentCalls.list_facts,
        right="read",
        tag="facts",
        summary="Visible facts, newest first",
        words="Facts that form between two pages neither repeat nor hide others.",
        routes=["GET /facts"],
        tool=Tool(
            "list_facts",
            "List stored facts, newest first: to review what is remembered, or to find the id of one to "
            "correct.",
            "reads",
            leaves_out=["since", "until"],
        ),
        commands=["facts"],
    ),
    Operation(
        name="list reflections",
        call=AgentCalls.list_reflections,
        right="read",
        tag="reflections and blobs",
        summary="Visible reflections, newest first",
        words="Those that a blob has absorbed, too, unless said otherwise.",
        routes=["GET /reflections"],
        tool=Tool(
            "list_reflections",
            "List stored reflections, newest first: what users prefer, and how to work with them.",
            "reads",
            leaves_out=["since", "until"],
        ),
        commands=["reflections"],
    ),
    Operation(
        name="list blobs",
        call=AgentCalls.list_blobs,
        right="read",
        tag="reflections and blobs",
        summary="Consolidated texts of the visible scopes",
        words="From broad to narrow.",
        routes=["GET /blobs"],
        tool=Tool(
            "list_blobs",
            "List the consolidated texts of what is remembered, from the agent's to the user's, with their "
            "pinned sentences.",
            "reads",
        ),
        commands=["blobs"],
    ),
    Operation(
        name="history",
        call=AgentCalls.history,
        right="read",
        tag="facts",
        summary="A fact's earlier versions, and why",
        words="Its versions with the decision, model and cost of each.",
        routes=["GET /facts/{fact_id}/history"],
        commands=["history"],
    ),
    Operation(
        name="get fact",
        call=AgentCalls.fact,
        right="read",
        tag="facts",
        summary="One fact",
        words="404 where there is none of this id, or none that may be seen here.",
        routes=["GET /facts/{fact_id}"],
    ),
    Operation(
        name="get reflection",
        call=AgentCalls.reflection,
        right="read",
        tag="reflections and blobs",
        summary="One reflection",
        words="Return it with its earlier versions; 404 where there is none of this id, or none that may be seen "
        "here.",
        routes=["GET /reflections/{reflection_id}"],
    ),
    Operation(
        name="why",
        call=AgentCalls.why,
        right="read",
        tag="facts",
        summary="Why something is remembered so, or is not",
        words="Explain the facts, reflections and own messages that have these words, as far as they may be seen "
        "here.",
        routes=["GET /why"],
        tool=Tool(
            "why",
            "Why something is remembered as it is, or is not: its message, window, calls, answer and "
            "decision.\n\nUse it when the user asks why you remember something, or why you do not.",
            "reads",
        ),
        commands=["why"],
    ),
    Operation(
        name="stats",
        call=AgentCalls.get_memory_stats,
        right="read",
        tag="numbers",
        summary="The visible scopes in numbers",
        words="By label: `agent`, `user`, `shard:<name>`, …",
        routes=["GET /stats"],
        commands=["stats"],
    ),
    Operation(
        name="consolidation status",
        call=AgentCalls.get_consolidation_status,
        right="read",
        tag="numbers",
        summary="Buffers and thresholds of the visible scopes",
        words="By label.",
        routes=["GET /consolidation"],
        commands=["status --agent"],
    ),
    Operation(
        name="changes",
        call=AgentCalls.changes,
        right="read",
        tag="events",
        summary="Changes of memory",
        words="`changed` and `gone` events for the visible scopes of a session, a user, or the agent "
        "alone.\n\nSeveral changes of a scope may come as one, the newest. The stream ends when the caller "
        "may no longer see it, and when the server stops: clients connect again by themselves.",
        routes=["GET /events"],
    ),
    Operation(
        name="add",
        call=add,
        right="write",
        new=True,
        tag="writing",
        summary="Remember a text or messages",
        words="It is formed as chat messages are, or kept verbatim. Without a session it stands in one of its "
        "own.",
        routes=["POST /memories"],
        tool=Tool(
            "add_memory",
            "Remember a text that is worth knowing in later conversations: only what the user wants "
            "remembered.\n\nFacts and reflections are formed from it in the background, compared with what is "
            "known, unless it is verbatim; it is not searchable at once.",
            leaves_out=["messages"],
            requires=["text"],
            status="accepted: facts and reflections are formed from it, or it is kept verbatim, in the background",
        ),
        commands=["add"],
        examples={"text": "I moved to Lisbon in May."},
    ),
    Operation(
        name="edit",
        call=AgentCalls.edit,
        right="write",
        tag="facts",
        summary="Give a {kind} another text",
        words="The earlier text stays in the history. 409 if it stands at another version than expected, is "
        "retired or absorbed, or if a blob's text lacks a pinned sentence.",
        routes=["PATCH /facts/{memory_id}", "PATCH /reflections/{memory_id}", "PATCH /blobs/{memory_id}"],
        tool=Tool(
            "edit_memory",
            "Give a fact, reflection or blob another text. Only if the user wants it corrected.\n\nThe earlier "
            "text stays in the history. A blob keeps its pinned sentences; a reflection that a blob has "
            "absorbed is corrected in the blob.",
            status=ASKED,
        ),
        commands=["edit"],
        examples={"text": "Ada lives in Lisbon.", "expected_version": 1},
    ),
    Operation(
        name="retire",
        call=AgentCalls.retire,
        right="write",
        tag="facts",
        summary="Take a {kind} out of use",
        words="Out of search, context and consolidation; its history stays. `forget` leaves nothing of it.",
        routes=["POST /facts/{memory_id}/retire", "POST /reflections/{memory_id}/retire"],
        tool=Tool(
            "retire_memory",
            "Take a fact or reflection out of use, its history stays; `forget` erases. Only if the user wants "
            "it.",
            status=ASKED,
        ),
        commands=["retire"],
    ),
    Operation(
        name="merge facts",
        call=AgentCalls.merge,
        right="write",
        tag="facts",
        summary="Make one of two facts that say the same",
        words="It takes over the sources of the other one, which retires; both keep their history.",
        routes=["POST /facts/{fact_id}/merge"],
        tool=Tool(
            "merge_facts",
            "Make one of two facts that say the same; the second one retires, its history stays. Only if the "
            "user wants it.",
            status=ASKED,
        ),
        commands=["merge"],
        examples={"duplicate_id": "77a0c4e2b1"},
    ),
    Operation(
        name="mark private",
        call=AgentCalls.mark_private,
        right="write",
        tag="facts",
        summary="Mark a {kind} as private",
        words="Nothing of it is propagated to a broader scope; of a fact: nothing that rests on its messages. "
        "`private: false` takes the mark away.",
        routes=["POST /facts/{memory_id}/private", "POST /reflections/{memory_id}/private"],
        tool=Tool(
            "mark_private",
            "Mark a reflection or fact as private: nothing of it reaches a broader scope, such as the "
            "agent's.\n\nWith a fact, the reflections that rest on the same messages are marked, too.",
            status=ASKED,
        ),
        commands=["private"],
    ),
    Operation(
        name="pin",
        call=AgentCalls.pin,
        right="write",
        tag="reflections and blobs",
        summary="Pin a sentence",
        words="The blob holds it, and every later version keeps it word for word.",
        routes=["POST /blobs/{scope}/pin"],
        tool=Tool(
            "pin_sentence",
            "Put a sentence into a blob that every later version keeps word for word. Only if the user wants "
            "it.",
            status=ASKED,
        ),
        commands=["pin"],
        examples={"sentence": "Never call before nine."},
    ),
    Operation(
        name="unpin",
        call=AgentCalls.unpin,
        right="write",
        tag="reflections and blobs",
        summary="Unpin a sentence",
        words="The next consolidation may reword it. 409 if it is not pinned.",
        routes=["POST /blobs/{scope}/unpin"],
        tool=Tool(
            "unpin_sentence",
            "Let later versions of a blob reword a pinned sentence. Only if the user wants it.",
            status=ASKED,
        ),
        commands=["unpin"],
        examples={"sentence": "Never call before nine."},
    ),
    Operation(
        name="forget",
        call=forget,
        right="write",
        tag="writing",
        summary="Forget something, for ever",
        words="Memory derived from it is deleted. A key that is bound names its session or user.",
        routes=["POST /forget", "DELETE /v1/users/{user}"],
        tool=Tool(
            "forget",
            "Erase one memory for ever, with everything that rests on it alone. Only if the user asks for "
            "it.\n\nA fact or reflection by its id from `search_facts` or a list; a message or conversation by "
            "its own id. It cannot be undone.",
            "erases",
            status="accepted: it is erased everywhere in the background, for ever",
        ),
        commands=["forget"],
        examples={"what": "session", "target": "s.chat-7"},
    ),
    Operation(
        name="preview undo",
        call=preview_undo,
        right="write",
        tag="writing",
        summary="What undoing an attack would change",
        words="All memory that it led to, alone or with others, and what that displaced; ids and versions, no "
        "texts.",
        routes=["POST /undo/preview"],
        tool=Tool(
            "preview_undo",
            "Show what `undo` would change: all memory that a message or session led to, and what that "
            "displaced.\n\nIds and versions, no texts. Show it to the user before you undo anything.",
            "reads",
        ),
        commands=["forget --caused-by"],
        examples={"cause": "session", "target": "s.chat-7"},
    ),
    Operation(
        name="undo",
        call=undo,
        right="write",
        tag="writing",
        summary="Undo an attack, for ever",
        words="Forgets all that it led to, and restores the rest. 409 if something else would change than was "
        "shown.",
        routes=["POST /undo"],
        tool=Tool(
            "undo",
            "Forget a message or session with all memory that it led to, and restore what it displaced, for "
            "ever.\n\nOnly if the user has agreed to what `preview_undo` has shown. It cannot be undone.",
            "erases",
            status="accepted: it is carried out in the background; `preview_undo` shows what is left",
        ),
        commands=["forget --caused-by"],
        examples={"cause": "session", "target": "s.chat-7", "preview": "5f0c2f1c9a7d4e0bb7a1c3d2e4f60718"},
    ),
    Operation(
        name="receipt",
        call=receipt,
        right="admin",
        of_agent=True,
        tag="writing",
        summary="The receipt of a request to forget or to undo",
        words="It names what was erased by ids and keyed hashes. 404 until it is carried out, 409 while "
        "something is left.",
        routes=["GET /v1/receipts/{request_id}"],
        tool=Tool(
            "forget_receipt",
            "Return the signed receipt of a request to forget or undo: what was erased, and when each store is "
            "clean.\n\nIt names memory by ids and keyed hashes. Only for keys that administer all agents and "
            "users.",
            "reads",
        ),
        commands=["forget --receipt"],
    ),
    Operation(
        name="verify receipt",
        call=verify_receipt,
        right="admin",
        of_agent=True,
        tag="writing",
        summary="Check a receipt, at any later time",
        words="422 unless this installation has signed exactly this receipt; else what it names and is there, or "
        "not clean.",
        routes=["POST /v1/receipts/verify"],
        tool=Tool(
            "verify_receipt",
            "Check a receipt: whether it is genuine, whether anything that it names is there, what is not "
            "clean yet.\n\nOnly for keys that administer all agents and users.",
            "reads",
        ),
        commands=["forget verify"],
    ),
    Operation(
        name="export user",
        call=ProcessMemory.export_items,
        right="admin",
        python=["export_user", "export_items"],
        tag="users",
        summary="Everything held about a user",
        words='Sent while it is read: `{"user": …, "items": [{"collection": …, "document": …}, …]}`.',
        routes=["GET /v1/users/{user}/export"],
    ),
    Operation(
        name="start session",
        call=AgentCalls.on_session_start,
        right="read",
        answer=p.ContextText,
        tag="sessions",
        summary="A session begins",
        words="Has the context at hand before the first turn, and answers it.",
        routes=["POST /sessions/{session}/start"],
    ),
    Operation(
        name="end session",
        call=AgentCalls.on_session_end,
        right="write",
        tag="sessions",
        summary="A session is over",
        words="Its last window is formed, and its memory consolidated.",
        routes=["POST /sessions/{session}/end"],
        commands=["session end"],
    ),
    Operation(
        name="form session",
        call=form,
        right="write",
        python=["form_now", "maybe_form_memories", "process_cold_session"],
        in_query=True,
        tag="sessions",
        summary="Form memories now",
        words="Form the session's pending messages, however few; with `if_due` only if a window is due.",
        routes=["POST /sessions/{session}/form"],
        commands=["session form"],
    ),
    Operation(
        name="list shared",
        call=AgentCalls.list_shared,
        right="read",
        of_agent=True,
        tag="sharing",
        summary="What came from users into memory that others see",
        words="Newest first, with the sessions and users whose messages it rests on. Takes a key that is bound to no "
        "user.",
        routes=["GET /shared"],
        commands=["sharing list"],
    ),
    Operation(
        name="take back",
        call=AgentCalls.take_back,
        right="write",
        of_agent=True,
        tag="sharing",
        summary="Take an item out of shared memory",
        words="It is retired, or (`move`) given to the one user who said it; what says the same is not shared again. "
        "Takes a key that is bound to no user.",
        routes=["POST /shared/{memory_id}/take-back"],
        commands=["sharing move", "sharing retire"],
    ),
    Operation(
        name="audit",
        call=audit,
        right="read",
        tag="numbers",
        summary="How much of memory is junk, and its retirement",
        words="The share of duplicates, contradicted and expired facts, quotes of our own context, facts that no "
        "message supports and facts about nobody, with examples. `retire` requests that all of a kind are retired, "
        "those that its `preview` has shown; the answer names them for an undo. Takes a key with the right `admin`, "
        "bound to none.",
        routes=["POST /audit"],
        tool=Tool(
            "audit_memory",
            "Count the stored facts that memory would be better without, with examples: duplicates, contradicted and "
            "expired ones, facts that no message supports.\n\nOnly for keys that administer all agents and users.",
            "reads",
            leaves_out=["retire", "preview"],
        ),
        commands=["audit"],
        examples={"retire": "near_duplicate", "preview": "1f0c65a0b7d94e2f8a31c5d6e7f80912"},
    ),
    Operation(
        name="list streams",
        call=list_streams,
        right="read",
        of_agent=True,
        tag="streams",
        summary="The agent's streams",
        words="Scopes without a stream are formed by the settings. Takes a key that is bound to no user.",
        routes=["GET /streams"],
        commands=["stream list"],
    ),
    Operation(
        name="get stream",
        call=get_stream,
        right="read",
        of_agent=True,
        tag="streams",
        summary="A scope's stream",
        words="404 if the scope has none.",
        routes=["GET /streams/{scope}"],
        commands=["stream show"],
    ),
    Operation(
        name="set stream",
        call=set_stream,
        right="admin",
        of_agent=True,
        tag="streams",
        summary="Set fields of a scope's stream, or make it",
        words="Makes a shard, if there is none of this name. Takes a key with the right `admin`, bound to no "
        "user.",
        routes=["PATCH /streams/{scope}"],
        commands=["stream set", "stream off"],
    ),
    Operation(
        name="add webhook",
        call=add_webhook,
        right="admin",
        of_agent=True,
        tag="webhooks",
        summary="Tell a program of changes by HTTP",
        words="Answers the secret of its signatures, this once. A private address is for `eden webhooks add "
        "--allow-private` alone.",
        routes=["POST /v1/webhooks"],
        commands=["webhooks add"],
        examples={"url": "https://example.com/eden", "on": ["facts", "reflections", "forgotten"]},
    ),
    Operation(
        name="list webhooks",
        call=list_webhooks,
        right="admin",
        of_agent=True,
        tag="webhooks",
        summary="The webhooks, and how they do",
        words="Oldest first, with how many notices wait for each. Without secrets.",
        routes=["GET /v1/webhooks"],
        commands=["webhooks list"],
    ),
    Operation(
        name="remove webhook",
        call=remove_webhook,
        right="admin",
        of_agent=True,
        tag="webhooks",
        summary="Remove a webhook",
        words="With what waits for it: nothing is sent to it any more, not even what is forgotten.",
        routes=["DELETE /v1/webhooks/{webhook_id}"],
        commands=["webhooks remove"],
    ),
)
BY_NAME: Mapping[str, Operation] = {operation.name: operation for operation in OPERATIONS}
