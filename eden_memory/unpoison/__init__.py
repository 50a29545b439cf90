"""Undo of an attack: removes a message, session, user, import or call with all it led to, and restores the rest."""
