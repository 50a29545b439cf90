"""Imports of other systems' memories: each source is read item by item, and each item becomes a request to memory.

`import_items` makes requests under ids that stay the same, so a second import changes nothing. The readers
(`file_items` with `mirror_page`, `chat_items`, `v1_store`) know the sources; `importing` judges, writes and follows
the requests.
"""
