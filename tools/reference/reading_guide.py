"""The guide to reading the topics in any language: the description in docs/asyncapi.yaml."""

GUIDE = """\
Topics of Eden Memory: chat messages, and the memory formed from them. This document, the JSON Schemas that it
points to and the examples in it are all that a consumer needs.

## Names

- **Topics** stand here without the installation's prefix (`EDEN_KAFKA_TOPIC_PREFIX`, empty unless set): with
  the prefix `acme.`, `memory.facts` is `acme.memory.facts`. The server's address is an example. Numbers of
  partitions are those of a new installation: ask the broker.
- **Namespaces.** A memory that was formed anew (`eden reform NAME`) has memory topics of its own:
  `<prefix>ns.<NAME>.memory.facts`. `chat.messages`, `memory.forgotten` and `memory.usage` are shared by all.
  Kafka does not say which memory is live: `eden namespace list` does. A rebuilt memory (`eden rebuild`) has the
  topics of its source.
- **Groups.** Use no group, or one whose name does not begin with the installation's group prefix
  (`EDEN_KAFKA_GROUP_PREFIX`, `eden.` unless set). Where the broker checks access, READ on the topics, and on the
  group if any, is enough.
- **`x-later`** marks operations that are declared and not written yet.

## Reading

- **Codec.** Batches are compressed with zstd. Some clients need a package for it (aiokafka: `cramjam`; KafkaJS:
  a codec).
- **Content mode.** CloudEvents 1.0, binary mode: attributes are headers `ce_*`, UTF-8; the value is the event's
  JSON and nothing else. The Kafka key is text, too.
- **From the start.** Begin at the earliest offsets. Topics whose `cleanup.policy` is `compact` alone are
  complete for ever: what stands in them is all that is remembered, no other system is asked.
- **Caught up.** Take the end offsets when you begin; you are there when your *position* has reached them in
  every partition. Offsets have gaps (compaction, transaction markers), so the last record's offset may never be
  `end - 1`.
- **Transactions.** No record is part of one: readers of committed records see all of them as soon as others do.

## Order, repeats, versions

- Records with the same `ce_orderingkey` (a session, or a scope) are in one partition: murmur2 of it, as Java's
  default partitioner has it. The Kafka key does not choose the partition. New versions are appended in rising
  order.
- Any record may come again, at any time: also an older version after a newer one, also after its tombstone. A
  repeat has the same `ce_id`.
- `memory.facts` and `memory.consolidations`: a record is one whole version of a fact or blob, with the key
  `<entity>@<version>`; split at the last `@`. **The state of an entity is its highest version that is not
  erased.** Versions have gaps. `memory.reflections`: a reflection has one version, its key is its id. A reader
  that keeps every entity's highest version, and the erased keys, comes to the same state in any order; two
  copies of one key say the same.
- `chat.messages`: the key is the message, the record with the highest `version` in its value counts.
  `memory.changes`: the newest record of a scope counts.

## Tombstones

- A record without value erases its key. In the three memory topics for ever: no version number is used twice,
  so a value that comes later under an erased key is a late copy. In `chat.messages` up to the version in
  `ce_entityversion`: a higher one counts again. `ce_type` says the kind of event, `ce_subject` the entity,
  `ce_entityversion` the version, `ce_scope` the scope, `ce_reason` why.
- A fact that is erased has a tombstone for each of its versions; a blob for the withdrawn version and all after
  it.
- Tombstones stay for 30 days (`delete.retention.ms`). Who was away for longer reads anew from the start.
- `memory.forgotten` need not be read to keep a view right: what falls under it gets its tombstone in its own
  topic, also when it is published late. Read it to erase copies elsewhere, by ids of messages, sessions and
  users.

## Values

- **Entity ids** say their type: `s.` text, `i.` integer, `u.` UUID, `o.` ObjectId (hex); behind the dot
  percent-encoded except letters, digits, `_`, `.`, `-` and `~`. `i.5` and `s.5` are two. Ids that the program
  makes (facts, formations, calls, events) are opaque.
- **Scope keys**: `session:S`, `session:S:2` (begun anew, as its audience grew), `user:A:U`, `group:A:G`,
  `agent:A`, `shard:A:NAME`, with entity ids in place of letters. `scope` in a value has the parts; memory of a
  `user:` scope is for that user only, of a `session:` scope for its `audience`.
- **Audiences**: a list of up to 100 users, or an object with `users` (how many) and `hash`: SHA-256, in hexadecimal,
  of their ids, sorted, each with a line feed behind it. To know whether somebody belongs to a larger audience, follow
  the session's `memory.formations`: the first window of each such `generation` has `audience_change`, who joined and
  left since the newest generation before it that you know. What you get has to have the hash; where it has not, or
  there is no `audience_change`, show the memory only among users whose hash it is. Versions before v3 (SessionClosed
  and ScopeChanged: v2) list all users.
- **Times**: RFC 3339, UTC, three decimals. `ce_time` is when what a record tells of happened; Kafka's own
  timestamp is when the broker appended it.
- **Money**: US dollars, a decimal in a string, at most 12 decimals, never a float. null: the price is unknown,
  not 0.
- **Vectors**: float32, little-endian, base64. **Versions of messages**: 16 hexadecimal digits that compare as
  text.

## Versions of schemas

- `ce_type` ends in the schema's version. A released version never changes, not even by an optional field; a
  change is a new version (`.v2`) in the same topic, and older records stay as they are.
- The schemas are closed (`additionalProperties: false`), so a record can be validated by the schema of its own
  version. Reading without validation, ignore fields that you do not know. Pass over types and versions that you do
  not know, and count them.
"""
