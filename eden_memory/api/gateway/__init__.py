"""The chat gateway: adds memory to chats over OpenAI's and Anthropic's APIs, and stores both turns."""
