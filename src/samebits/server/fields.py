"""Fields that other servers know and this one does not act on: refused by name, or accepted because they ask nothing.

With the descriptions in `protocol.py` this is the whole list: what is checked, docs/requests.md and the tests are made
of the two. A field in neither is refused, since nobody can tell whether it is a constraint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samebits.server.base_body import Body
from samebits.server.errors import bad_request, shown
from samebits.server.protocol import ChatBody, CompletionBody, EmbeddingBody

MAX_SHOWN_CHARS = 40
BOTH, CHAT, COMPLETE, EMBED = (ChatBody, CompletionBody), (ChatBody,), (CompletionBody,), (EmbeddingBody,)


@dataclass(frozen=True)
class Refused:
    """A field that is refused, except with a value that asks for nothing; null always does."""

    bodies: tuple[type[Body], ...]
    asks: str
    harmless: tuple[Any, ...] = ()

    def is_harmless(self, value: Any) -> bool:
        return value is None or any(
            isinstance(h, bool) == isinstance(value, bool) and h == value for h in self.harmless
        )


REFUSED: dict[str, Refused] = {
    # OpenAI's
    "functions": Refused(CHAT, "what became `tools`", ([],)),
    "function_call": Refused(CHAT, "what became `tool_choice`", ("none", "auto")),
    "modalities": Refused(CHAT, "answers that are no text", (["text"],)),
    "audio": Refused(CHAT, "spoken answers"),
    "prediction": Refused(CHAT, "a text that the answer is likely to repeat"),
    "verbosity": Refused(CHAT, "longer or shorter answers", ("medium",)),
    "web_search_options": Refused(CHAT, "a search"),
    "store": Refused(CHAT, "answers that are kept", (False,)),
    "moderation": Refused(CHAT, "a judgement of the answer"),
    "suffix": Refused(COMPLETE, "a text that follows the answer", ("",)),
    "dimensions": Refused(EMBED, "shorter vectors"),
    # draws that have no kernel here
    "typical_p": Refused(BOTH, "locally typical draws", (1,)),
    "tfs_z": Refused(BOTH, "tail-free draws", (1,)),
    "top_a": Refused(BOTH, "a threshold by the square of the likeliest", (0,)),
    "top_n_sigma": Refused(BOTH, "a threshold in standard deviations", (-1,)),
    "mirostat": Refused(BOTH, "draws at a constant surprise", (0,)),
    "dynatemp_range": Refused(BOTH, "a temperature that varies", (0,)),
    "dry_multiplier": Refused(BOTH, "a penalty on repeated sequences", (0,)),
    "xtc_probability": Refused(BOTH, "likely tokens left out at random", (0,)),
    "adaptive_target": Refused(BOTH, "draws towards a probability", (-1,)),
    "repeat_last_n": Refused(BOTH, "penalties over a part of the text; ours look at all of it", (-1,)),
    "samplers": Refused(BOTH, "another order of the steps of a draw"),
    "min_keep": Refused(BOTH, "tokens that no threshold removes", (0, 1)),
    "use_beam_search": Refused(BOTH, "beam search", (False,)),
    "length_penalty": Refused(BOTH, "beam search's lengths", (1,)),
    "early_stopping": Refused(BOTH, "beam search's end", (False,)),
    "custom_logit_processor": Refused(BOTH, "code of the client's in the draw"),
    "custom_params": Refused(BOTH, "parameters of that code"),
    "logits_processors": Refused(BOTH, "code of the client's in the draw", ([],)),
    "vllm_xargs": Refused(BOTH, "parameters of plugins"),
    "watermarking": Refused(BOTH, "a watermark in the answer", (False,)),
    # ends of an answer
    "stop_regex": Refused(BOTH, "a pattern that ends the answer", ([], "")),
    "repetition_detection": Refused(BOTH, "an end where the text repeats itself"),
    "t_max_predict_ms": Refused(BOTH, "an end after some time", (0, -1)),
    "n_indent": Refused(BOTH, "an end where lines are indented less", (0,)),
    "thinking_token_budget": Refused(CHAT, "an end of the reasoning", (-1,)),
    # forms of an answer
    "guided_whitespace_pattern": Refused(BOTH, "white space of another form in JSON"),
    "grammar_lazy": Refused(BOTH, "a grammar that begins later", (False,)),
    "grammar_triggers": Refused(BOTH, "where that grammar begins", ([],)),
    "structural_tag": Refused(BOTH, "forms between tags"),
    # the prompt
    "chat_template": Refused(CHAT, "a template of the client's"),
    "documents": Refused(CHAT, "documents for the template", ([],)),
    "input_ids": Refused(CHAT, "a prompt beside the messages"),
    "task": Refused(CHAT, "a token of one model's own"),
    "n_keep": Refused(BOTH, "a prompt that is cut in the middle", (0, -1)),
    "n_discard": Refused(BOTH, "how much of it is cut", (0,)),
    "truncation_side": Refused(BOTH, "which end of a prompt is cut", ("left",)),
    "prompt_embeds": Refused(COMPLETE, "a prompt of vectors"),
    "image_data": Refused(BOTH, "pictures", ([],)),
    "images_config": Refused(BOTH, "pictures"),
    "mm_processor_kwargs": Refused(CHAT, "pictures and sounds"),
    "media_io_kwargs": Refused(CHAT, "pictures and sounds"),
    "session_params": Refused(BOTH, "a prompt that goes on from an earlier one"),
    # other weights
    "lora": Refused(BOTH, "adapters", ([],)),
    "lora_path": Refused(BOTH, "adapters"),
    # what comes back
    "n_probs": Refused(CHAT, "what is `top_logprobs` here", (0,)),
    "post_sampling_probs": Refused(BOTH, "probabilities after the draw's thresholds", (False,)),
    "logprob_token_ids": Refused(BOTH, "log-probabilities of chosen tokens"),
    "return_tokens_as_token_ids": Refused(BOTH, "ids in place of texts", (False,)),
    "return_token_ids": Refused(BOTH, "ids beside texts", (False,)),
    "return_tokens": Refused(BOTH, "ids beside texts", (False,)),
    "return_prompt_token_ids": Refused(CHAT, "ids of the prompt", (False,)),
    "return_prompt_text": Refused(CHAT, "the rendered prompt", (False,)),
    "return_hidden_states": Refused(BOTH, "hidden states", (False,)),
    "return_routed_experts": Refused(BOTH, "the experts of each token", (False,)),
    "return_meta_info": Refused(CHAT, "figures of the request", (False,)),
    "timings_per_token": Refused(BOTH, "times in every chunk", (False,)),
    "return_progress": Refused(BOTH, "the prompt's progress", (False,)),
    "response_fields": Refused(BOTH, "some fields of the answer alone", ([],)),
    "include_reasoning": Refused(CHAT, "an answer without its reasoning", (True,)),
    "separate_reasoning": Refused(CHAT, "reasoning within the text", (True,)),
    "reasoning_format": Refused(CHAT, "reasoning within the text", ("auto", "deepseek")),
    "stream_reasoning": Refused(CHAT, "reasoning in one piece", (True,)),
    "thinking_forced_open": Refused(CHAT, "an answer that begins with reasoning", (False,)),
    "parse_tool_calls": Refused(CHAT, "calls as text", (True,)),
}
ACCEPTED: dict[str, tuple[tuple[type[Body], ...], str]] = {
    "user": ((ChatBody, CompletionBody, EmbeddingBody), "who asks"),
    "metadata": (BOTH, "notes of the client's"),
    "service_tier": (BOTH, "there is one tier of service"),
    "safety_identifier": (BOTH, "who asks"),
    "prompt_cache_key": (BOTH, "prompts are kept by what they say"),
    "prompt_cache_retention": (BOTH, "the same"),
    "cache_prompt": (BOTH, "kept prompts change no bit"),
    "id_slot": (BOTH, "where a request runs changes no bit"),
    "request_id": (BOTH, "the header x-request-id names a request"),
    "rid": (BOTH, "the same"),
    "session_id": (BOTH, "notes of the client's"),
    "custom_labels": (BOTH, "notes of the client's"),
    "extra_key": (BOTH, "notes of the client's"),
    "guided_decoding_backend": (BOTH, "there is one"),
    "guided_decoding_disable_fallback": (BOTH, "there is none"),
    "spaces_between_special_tokens": (BOTH, "no space is added in either case"),
    "stream_interval": (BOTH, "chunks may be smaller than asked for"),
    "sse_ping_interval": (BOTH, "no pings are sent"),
    "mirostat_tau": (BOTH, "has a meaning with `mirostat` alone"),
    "mirostat_eta": (BOTH, "the same"),
    "dynatemp_exponent": (BOTH, "has a meaning with `dynatemp_range` alone"),
    "dry_base": (BOTH, "has a meaning with `dry_multiplier` alone"),
    "dry_allowed_length": (BOTH, "the same"),
    "dry_penalty_last_n": (BOTH, "the same"),
    "dry_sequence_breakers": (BOTH, "the same"),
    "xtc_threshold": (BOTH, "has a meaning with `xtc_probability` alone"),
    "adaptive_decay": (BOTH, "has a meaning with `adaptive_target` alone"),
    "speculative.n_max": (BOTH, "no token is guessed ahead"),
    "speculative.n_min": (BOTH, "the same"),
    "speculative.p_min": (BOTH, "the same"),
}


def check_fields(kind: type[Body], body: dict[str, Any]) -> None:
    """ApiError for a field that is known and not supported, or not known at all."""
    known = {name for names in kind.names().values() for name in names}
    for name, value in body.items():
        if name in known:
            continue
        if name in REFUSED and kind in REFUSED[name].bodies:
            row = REFUSED[name]
            if not row.is_harmless(value):
                raise bad_request(name, shown(value), f"nothing: {row.asks}: not supported", "unsupported_parameter")
        elif name not in ACCEPTED or kind not in ACCEPTED[name][0]:
            given = "a field that this server does not know"
            raise bad_request(name[:MAX_SHOWN_CHARS], given, "fields of docs/requests.md alone", "unknown_parameter")
