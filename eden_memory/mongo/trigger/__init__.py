"""formation-trigger's state: sessions, messages, texts of windows."""
