"""The OpenAI-compatible chat gateway: adds memory to chats with a provider, and stores both turns."""
