"""The schema of the API, from the models that check it."""

from __future__ import annotations

import re
from typing import Any

from samebits import __version__
from samebits.server.bodies.base import Body
from samebits.server.bodies.openai import ChatBody, CompletionBody, DetokenizeBody, EmbeddingBody, TokenizeBody
from samebits.server.http.error_shapes import Shape, messages_error, ollama_error, openai_error, shape_for
from samebits.server.protocols.messages_body import MessagesBody
from samebits.server.protocols.ollama_body import OllamaChatBody, OllamaGenerateBody, ShowBody
from samebits.server.protocols.rerank import RerankBody
from samebits.server.protocols.responses_body import ResponsesBody

POSTS: dict[str, tuple[type[Body], str]] = {
    "/v1/chat/completions": (ChatBody, "Answer a conversation"),
    "/v1/completions": (CompletionBody, "Continue prompts"),
    "/v1/responses": (ResponsesBody, "Answer a conversation, as items"),
    "/v1/messages": (MessagesBody, "Answer a conversation, as blocks"),
    "/v1/rerank": (RerankBody, "How well documents answer a query"),
    "/api/chat": (OllamaChatBody, "Answer a conversation, as Ollama does"),
    "/api/generate": (OllamaGenerateBody, "Answer a prompt, as Ollama does"),
    "/api/show": (ShowBody, "What the model can do"),
    "/v1/embeddings": (EmbeddingBody, "Vectors of texts"),
    "/tokenize": (TokenizeBody, "Text to token ids"),
    "/detokenize": (DetokenizeBody, "Token ids to text"),
}
GETS = {
    "/v1/models": "The model that is served",
    "/v1/receipts/{id}": "Receipts of an answer, where they are kept",
    "/health": "Whether requests can be answered",
    "/metrics": "Prometheus metrics",
    "/state": "Pages, sequences and the last steps",
    "/version": "The server's version",
    "/props": "The model's context, template and slots, and the values of sampling fields that a request leaves out",
    "/tokenizer_info": "Special tokens and the chat template",
    "/api/tags": "The model that is served, as Ollama says it",
    "/api/ps": "The same, once it is loaded",
    "/api/version": "The server's version",
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
MESSAGES_ERROR = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
    },
}
OLLAMA_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
ERRORS: dict[Shape, tuple[str, dict[str, Any]]] = {
    openai_error: ("Error", ERROR),
    messages_error: ("MessagesError", MESSAGES_ERROR),
    ollama_error: ("OllamaError", OLLAMA_ERROR),
}
STATUSES = {
    "400": "A wrong value",
    "401": "No key, or a wrong one",
    "403": "A Host or Origin of another site, at a server without a key",
    "404": "No such model, or no such receipt",
    "413": "A body that is too long",
    "415": "A body that is no application/json",
    "500": "A fault of the server",
    "503": "Loading, or too many requests wait",
}


NAMES = re.compile(r"{(\w+)}")  # within a path


def schema(model: str) -> dict[str, Any]:
    """OpenAPI 3.1."""
    components: dict[str, Any] = dict(ERRORS.values())
    paths: dict[str, Any] = {}
    for path, (kind, summary) in POSTS.items():
        body = kind.model_json_schema(ref_template="#/components/schemas/{model}", by_alias=True)
        components |= body.pop("$defs", {})
        components[kind.__name__] = body
        content = {"application/json": {"schema": _reference(kind.__name__)}}
        replies = {"200": {"description": summary}, **_errors(path)}
        paths[path] = {
            "post": {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": replies}
        }
    for path, summary in GETS.items():
        told = {"summary": summary, "responses": {"200": {"description": summary}, **_errors(path)}}
        named = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in NAMES.findall(path)]
        paths[path] = {"get": told | ({"parameters": named} if named else {})}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"samebits: {model}", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _errors(path: str) -> dict[str, Any]:
    name, _ = ERRORS[shape_for(path)]
    content = {"application/json": {"schema": _reference(name)}}
    return {status: {"description": text, "content": content} for status, text in STATUSES.items()}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
