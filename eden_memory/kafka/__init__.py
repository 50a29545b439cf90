"""One place for Kafka's clients: connections, topics, offsets, lag and groups."""
