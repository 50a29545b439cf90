"""Search, decided: candidates, and how lists of them become one answer. Pure."""
