"""Memory inside agent frameworks, one module each (docs/adapters.md)."""
