"""The demo: a chat application writes a conversation into MongoDB, and everything that follows is shown."""
