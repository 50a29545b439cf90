"""Memory rebuilt from the memory topics."""
