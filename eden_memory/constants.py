"""Numbers that are no settings: what decides what is formed, kept, shown or accepted, and is the same everywhere.

docs/reference/settings.md lists them from this file. Numbers that only divide work (batches, pauses, timeouts) stand
in the module that uses them.
"""

CHARACTERS_PER_TOKEN = 4.5
"""Characters that count as one token of a window."""
USER_WEIGHT = 1.0
"""Weight of a user's tokens in a window."""
TOOL_WEIGHT = 0.5
"""Weight of the tokens of tools, the system and others in a window."""
ASSISTANT_WEIGHT = 0.2
"""Weight of an assistant's tokens in a window."""
SHOWN_OF_A_BUFFER = 2
"""A prompt and a context show the newest of a buffer: so many times the scope's threshold, at most."""
ABSORBED_AT_ONCE = 200
"""Reflections that one consolidation absorbs, at most."""
CONSOLIDATION_SECONDS = 30.0
"""Seconds of the windows' time between two consolidations of a scope, unless contexts would cut its buffer."""
MOST_SOURCES = 500
"""Messages that a fact rests on, as far as mere repetition adds to them: a version names them all."""
MOST_FACTS_TOGETHER = 64
"""New facts of a scope that are compared and decided in one call, at most."""
LONGEST_FACT = 2_000
"""Characters of a fact that a person edits or adds, at most: it stands in prompts, contexts and snapshots."""
LONGEST_BLOB = 60_000
"""Characters of a blob that a person writes, at most; the scope's word limit counts besides."""
LONGEST_REASON = 1_000
"""Characters of the reason for a change, at most."""
LONGEST_GUIDANCE = 4_000
"""Characters of a stream's guidance, at most: it stands in the prompts of every window."""
LONGEST_SHARD_NAME = 100
"""Characters of a shard's name, at most."""
MOST_RETENTION_DAYS = 36_500
"""Days after which a stream's facts may expire, at most."""
MOST_ADDED_TEXTS = 500
"""Messages that one call of `add` takes, at most."""
MOST_ADDED_CHARACTERS = 1_000_000
"""Characters that one call of `add` takes, at most."""
MOST_QUERIES = 3
"""Queries of one search, at most."""
MOST_QUERY_CHARACTERS = 2_000
"""Characters of one query, at most."""
MOST_FOUND = 200
"""Facts that one search returns, at most."""
MOST_HITS = 100
"""Facts that a gateway's request may ask for with `memory_top_k`, at most."""
MOST_LISTED = 200
"""Items on one page of a list, at most."""
MOST_READY_USERS = 1_000
"""Users of a session whose contexts lie ready in `memory_contexts`, at most: each names all of them."""
MOST_SESSION_USERS = 10_000
"""Users who write in a session, at most: messages of further users become dead letters."""
