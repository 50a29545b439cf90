"""Real MongoDB and Kafka as plain processes, out of Python packages (development and tests)."""
