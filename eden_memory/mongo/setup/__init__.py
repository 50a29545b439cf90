"""Collections, validators and indexes, created and checked."""
