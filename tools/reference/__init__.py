"""The reference pages, and the OpenAPI and AsyncAPI documents, made from the code."""
