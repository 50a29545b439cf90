"""Long-term memory for AI agents, formed in the background from chat writes."""
