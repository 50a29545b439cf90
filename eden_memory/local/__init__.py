"""Real MongoDB and Apache Kafka out of Python packages, as plain local processes (development and tests)."""
