"""How the records of memory become documents."""
