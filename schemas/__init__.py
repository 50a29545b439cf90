"""The contract: envelope, events, stored documents. Pydantic only."""
