"""Memory without async: the same calls, made in an event loop of a thread of its own."""
