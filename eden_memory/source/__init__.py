"""From MongoDB's change stream to chat.messages: mapping, position, reading in, merging."""
