"""Fields that other servers know and this one does not act on: refused by name, or accepted because they ask nothing.

With the descriptions in `protocol.py` this is the whole list: what is checked, docs/requests.md and the tests are made
of the two. A field in neither is refused, since nobody can tell whether it is a constraint.
"""

from __future__ import annotations

from typing import Any

from samebits.server.bodies.base import Body, Refused
from samebits.server.bodies.openai import ChatBody, CompletionBody, EmbeddingBody, Sampling
from samebits.server.http.errors import ApiError

MAX_SHOWN_CHARS = 40
Bodies = tuple[type[Body], ...]
ALL, CHAT, COMPLETE, EMBED = (Sampling,), (ChatBody,), (CompletionBody,), (EmbeddingBody,)


REFUSED: dict[str, tuple[Bodies, Refused]] = {
    # OpenAI's
    "functions": (CHAT, Refused("the older form of `tools`", ([],))),
    "function_call": (CHAT, Refused("the older form of `tool_choice`", ("none", "auto"))),
    "modalities": (CHAT, Refused("answers that are no text", (["text"],))),
    "audio": (CHAT, Refused("spoken answers")),
    "prediction": (CHAT, Refused("a text that the answer is likely to repeat")),
    "verbosity": (CHAT, Refused("longer or shorter answers", ("medium",))),
    "web_search_options": (CHAT, Refused("a search")),
    "store": (CHAT, Refused("answers that are kept", (False,))),
    "moderation": (CHAT, Refused("a judgement of the answer")),
    "suffix": (COMPLETE, Refused("a text that follows the answer", ("",))),
    "dimensions": (EMBED, Refused("shorter vectors")),
    # draws that have no kernel here
    "typical_p": (ALL, Refused("locally typical draws", (1,))),
    "tfs_z": (ALL, Refused("tail-free draws", (1,))),
    "top_a": (ALL, Refused("a threshold by the square of the likeliest", (0,))),
    "top_n_sigma": (ALL, Refused("a threshold in standard deviations", (-1,))),
    "mirostat": (ALL, Refused("draws at a constant surprise", (0,))),
    "dynatemp_range": (ALL, Refused("a temperature that varies", (0,))),
    "dry_multiplier": (ALL, Refused("a penalty on repeated sequences", (0,))),
    "xtc_probability": (ALL, Refused("likely tokens left out at random", (0,))),
    "adaptive_target": (ALL, Refused("draws towards a probability", (-1,))),
    "repeat_last_n": (ALL, Refused("penalties over a part of the text; ours look at all of it", (-1,))),
    "samplers": (ALL, Refused("another order of the steps of a draw")),
    "min_keep": (ALL, Refused("tokens that no threshold removes", (0, 1))),
    "use_beam_search": (ALL, Refused("beam search", (False,))),
    "length_penalty": (ALL, Refused("beam search's lengths", (1,))),
    "early_stopping": (ALL, Refused("beam search's end", (False,))),
    "custom_logit_processor": (ALL, Refused("code of the client's in the draw")),
    "custom_params": (ALL, Refused("parameters of that code")),
    "logits_processors": (ALL, Refused("code of the client's in the draw", ([],))),
    "vllm_xargs": (ALL, Refused("parameters of plugins")),
    "watermarking": (ALL, Refused("a watermark in the answer", (False,))),
    # ends of an answer
    "stop_regex": (ALL, Refused("a pattern that ends the answer", ([], ""))),
    "repetition_detection": (ALL, Refused("an end where the text repeats itself")),
    "t_max_predict_ms": (ALL, Refused("an end after some time", (0, -1))),
    "n_indent": (ALL, Refused("an end where lines are indented less", (0,))),
    "thinking_token_budget": (CHAT, Refused("an end of the reasoning", (-1,))),
    # forms of an answer
    "guided_whitespace_pattern": (ALL, Refused("white space of another form in JSON")),
    "grammar_lazy": (ALL, Refused("a grammar that begins later", (False,))),
    "grammar_triggers": (ALL, Refused("where that grammar begins", ([],))),
    "structural_tag": (ALL, Refused("forms between tags")),
    # the prompt
    "chat_template": (CHAT, Refused("a template of the client's")),
    "documents": (CHAT, Refused("documents for the template", ([],))),
    "input_ids": (CHAT, Refused("a prompt beside the messages")),
    "task": (CHAT, Refused("a token of one model's own")),
    "n_keep": (ALL, Refused("a prompt that is cut in the middle", (0, -1))),
    "n_discard": (ALL, Refused("how much of it is cut", (0,))),
    "truncation_side": (ALL, Refused("which end of a prompt is cut", ("left",))),
    "prompt_embeds": (COMPLETE, Refused("a prompt of vectors")),
    "image_data": (ALL, Refused("pictures", ([],))),
    "images_config": (ALL, Refused("pictures")),
    "mm_processor_kwargs": (CHAT, Refused("pictures and sounds")),
    "media_io_kwargs": (CHAT, Refused("pictures and sounds")),
    "session_params": (ALL, Refused("a prompt that goes on from an earlier one")),
    # other weights
    "lora": (ALL, Refused("adapters", ([],))),
    "lora_path": (ALL, Refused("adapters")),
    # what comes back
    "n_probs": (CHAT, Refused("probabilities, which `top_logprobs` gives", (0,))),
    "post_sampling_probs": (ALL, Refused("probabilities after the draw's thresholds", (False,))),
    "logprob_token_ids": (ALL, Refused("log-probabilities of chosen tokens")),
    "return_tokens_as_token_ids": (ALL, Refused("ids in place of texts", (False,))),
    "return_tokens": (ALL, Refused("ids beside texts", (False,))),
    "return_prompt_token_ids": (CHAT, Refused("ids of the prompt", (False,))),
    "return_prompt_text": (CHAT, Refused("the rendered prompt", (False,))),
    "return_hidden_states": (ALL, Refused("hidden states", (False,))),
    "return_routed_experts": (ALL, Refused("the experts of each token", (False,))),
    "return_meta_info": (CHAT, Refused("figures of the request", (False,))),
    "timings_per_token": (ALL, Refused("times in every chunk", (False,))),
    "return_progress": (ALL, Refused("the prompt's progress", (False,))),
    "response_fields": (ALL, Refused("some fields of the answer alone", ([],))),
    "include_reasoning": (CHAT, Refused("an answer without its reasoning", (True,))),
    "separate_reasoning": (CHAT, Refused("reasoning within the text", (True,))),
    "reasoning_format": (CHAT, Refused("reasoning within the text", ("auto", "deepseek"))),
    "stream_reasoning": (CHAT, Refused("reasoning in one piece", (True,))),
    "thinking_forced_open": (CHAT, Refused("an answer that begins with reasoning", (False,))),
    "parse_tool_calls": (CHAT, Refused("calls as text", (True,))),
}
ACCEPTED: dict[str, tuple[Bodies, str]] = {
    "user": ((Sampling, EmbeddingBody), "who asks"),
    "metadata": (ALL, "notes of the client's"),
    "service_tier": (ALL, "there is one tier of service"),
    "safety_identifier": (ALL, "who asks"),
    "prompt_cache_key": (ALL, "prompts are kept by what they say"),
    "prompt_cache_retention": (ALL, "the same"),
    "cache_prompt": (ALL, "kept prompts change no bit"),
    "id_slot": (ALL, "where a request runs changes no bit"),
    "request_id": (ALL, "the header x-request-id names a request"),
    "rid": (ALL, "the same"),
    "session_id": (ALL, "notes of the client's"),
    "custom_labels": (ALL, "notes of the client's"),
    "extra_key": (ALL, "notes of the client's"),
    "guided_decoding_backend": (ALL, "there is one"),
    "guided_decoding_disable_fallback": (ALL, "there is none"),
    "spaces_between_special_tokens": (ALL, "no space is added in either case"),
    "stream_interval": (ALL, "chunks may be smaller than asked for"),
    "sse_ping_interval": (ALL, "no pings are sent"),
    "mirostat_tau": (ALL, "has a meaning with `mirostat` alone"),
    "mirostat_eta": (ALL, "the same"),
    "dynatemp_exponent": (ALL, "has a meaning with `dynatemp_range` alone"),
    "dry_base": (ALL, "has a meaning with `dry_multiplier` alone"),
    "dry_allowed_length": (ALL, "the same"),
    "dry_penalty_last_n": (ALL, "the same"),
    "dry_sequence_breakers": (ALL, "the same"),
    "xtc_threshold": (ALL, "has a meaning with `xtc_probability` alone"),
    "adaptive_decay": (ALL, "has a meaning with `adaptive_target` alone"),
    "speculative.n_max": (ALL, "no token is guessed ahead"),
    "speculative.n_min": (ALL, "the same"),
    "speculative.p_min": (ALL, "the same"),
}


def refused_by(kind: type[Body]) -> dict[str, Refused]:
    """What a body's route refuses."""
    return {name: row for name, (bodies, row) in REFUSED.items() if issubclass(kind, bodies)} | kind.refused


def accepted_by(kind: type[Body]) -> dict[str, str]:
    """What a body's route takes without effect, and why it has none."""
    return {name: why for name, (bodies, why) in ACCEPTED.items() if issubclass(kind, bodies)} | kind.accepted


def check_fields(kind: type[Body], body: dict[str, Any], within: str = "") -> None:
    """ApiError for a field that is known and not supported, or not known at all; `within` stands before its name."""
    known = {name for names in kind.names().values() for name in names}
    refused, accepted = refused_by(kind), accepted_by(kind)
    for name, value in body.items():
        shown_name = within + name[:MAX_SHOWN_CHARS]
        if name in known or name in accepted:
            continue
        if name not in refused:
            message = f"{shown_name} is not a field that this server knows; docs/requests.md lists all of them"
            raise ApiError(400, message, shown_name, "unknown_parameter")
        row = refused[name]
        if not row.is_harmless(value):
            raise ApiError(400, f"{shown_name} is not supported: {row.reason}", shown_name, "unsupported_parameter")
