"""Memory formed anew from the chat topic."""
