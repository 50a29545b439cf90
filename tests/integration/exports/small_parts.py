"""`python -m tests.integration.exports.small_parts import eden …`: `eden`, which takes few memories at a time."""

from eden_memory.cli.main import main
from eden_memory.files import import_store, importing

AT_ONCE = 100

if __name__ == "__main__":
    import_store.AT_ONCE = importing.AT_ONCE = AT_ONCE
    main()
