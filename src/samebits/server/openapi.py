"""The schema of the API, from the models that check it."""

from __future__ import annotations

from typing import Any

from samebits import __version__
from samebits.server.base_body import Body
from samebits.server.protocol import ChatBody, CompletionBody, DetokenizeBody, EmbeddingBody, TokenizeBody

POSTS: dict[str, tuple[type[Body], str]] = {
    "/v1/chat/completions": (ChatBody, "Answer a conversation"),
    "/v1/completions": (CompletionBody, "Continue prompts"),
    "/v1/embeddings": (EmbeddingBody, "Vectors of texts"),
    "/tokenize": (TokenizeBody, "Text to token ids"),
    "/detokenize": (DetokenizeBody, "Token ids to text"),
}
GETS = {
    "/v1/models": "The model that is served",
    "/health": "Whether requests can be answered",
    "/metrics": "Prometheus metrics",
    "/state": "Pages, sequences and the last steps",
}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
STATUSES = {
    "400": "A wrong value",
    "401": "No key, or a wrong one",
    "403": "A Host or Origin of another site, at a server without a key",
    "404": "No such model",
    "413": "A body that is too long",
    "415": "A body that is no application/json",
    "500": "A fault of the server",
    "503": "Loading, or too many requests wait",
}


def schema(model: str) -> dict[str, Any]:
    """OpenAPI 3.1."""
    components: dict[str, Any] = {"Error": ERROR}
    paths: dict[str, Any] = {}
    errors = {
        status: {"description": text, "content": {"application/json": {"schema": _reference("Error")}}}
        for status, text in STATUSES.items()
    }
    for path, (kind, summary) in POSTS.items():
        body = kind.model_json_schema(ref_template="#/components/schemas/{model}", by_alias=True)
        components |= body.pop("$defs", {})
        components[kind.__name__] = body
        content = {"application/json": {"schema": _reference(kind.__name__)}}
        replies = {"200": {"description": summary}, **errors}
        paths[path] = {
            "post": {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": replies}
        }
    for path, summary in GETS.items():
        paths[path] = {"get": {"summary": summary, "responses": {"200": {"description": summary}, **errors}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"samebits: {model}", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
