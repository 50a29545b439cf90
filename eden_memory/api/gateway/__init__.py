"""The OpenAI-compatible chat gateway: adds memory to chats on their way to a provider, stores both turns."""
