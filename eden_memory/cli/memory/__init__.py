"""Commands on what is remembered: for people as tables, for programs as JSON."""
