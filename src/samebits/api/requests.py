"""What people give to `LLM`'s methods: read as it is meant, or refused in a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from samebits.core.arguments import whole_numbers
from samebits.core.errors import BadInput
from samebits.engine.sampling import SamplingParams

Prompt = str | Sequence[int]
Params = SamplingParams | Mapping[str, Any]
Message = Mapping[str, Any]
ONE_PROMPT = "a text or token ids"


def _plain(given: Any) -> Any:
    """Arrays of any library as lists, other iterables as lists, everything else as it is."""
    if hasattr(given, "tolist"):
        return given.tolist()
    is_plain = isinstance(given, (str, bytes, bytearray, Mapping)) or not isinstance(given, Iterable)
    return given if is_plain else list(given)


def one_prompt(where: str, given: Any, num_ids: int) -> str | list[int]:
    """A text, or token ids below num_ids; BadInput for anything else."""
    prompt = _plain(given)
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list):
        raise BadInput(where, "prompt", type(given).__name__, ONE_PROMPT)
    if any(isinstance(part, (str, list, tuple)) for part in prompt):
        raise BadInput(where, "prompt", f"a list of {len(prompt)} prompts", f"one: {ONE_PROMPT}")
    if any(isinstance(part, Mapping) for part in prompt):
        raise BadInput(where, "prompt", "messages", f"{ONE_PROMPT}; LLM.chat takes messages")
    return list(whole_numbers(where, "token id", prompt, 0, num_ids - 1))


def several_prompts(where: str, given: Any, num_ids: int) -> tuple[list[str | list[int]], bool]:
    """(prompts, whether it was one alone): a text or a flat list of ids is one."""
    prompts = _plain(given)
    is_several = isinstance(prompts, list) and all(isinstance(p, str) or hasattr(p, "__len__") for p in prompts)
    if is_several and not any(isinstance(p, Mapping) for p in prompts):
        return [one_prompt(where, prompt, num_ids) for prompt in prompts], False
    return [one_prompt(where, prompts, num_ids)], True


def one_params(where: str, given: Params | None) -> SamplingParams:
    """Parameters from a record, from its fields by name, or the usual ones; BadInput for anything else."""
    if given is None:
        return SamplingParams()
    if isinstance(given, SamplingParams):
        return given
    if not isinstance(given, Mapping):
        raise BadInput(where, "params", type(given).__name__, "SamplingParams, or a dict of its fields")
    names = [*(field.name for field in fields(SamplingParams)), "skip_special_tokens", "include_stop_str_in_output"]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise BadInput(where, "params", repr(unknown), f"one of {', '.join(names)}")
    return SamplingParams(**given)


def params_for(where: str, given: Params | Sequence[Params] | None, num_prompts: int) -> list[SamplingParams]:
    """Each prompt's parameters, with a seed: the same for all, or a list with one for each."""
    if not isinstance(given, (list, tuple)):
        return [one_params(where, given).with_seed()] * num_prompts  # type: ignore[arg-type]
    if len(given) != num_prompts:
        raise BadInput(where, "params", f"{len(given)} for {num_prompts} prompts", "one, or one for each prompt")
    return [one_params(where, params).with_seed() for params in given]


def single(where: str, params: SamplingParams, instead: str) -> SamplingParams:
    """The parameters; BadInput where they ask for several answers, of which the caller would get one."""
    if params.n != 1:
        raise BadInput(where, "n", params.n, f"1; {instead}")
    return params


def is_list_of_conversations(given: Any) -> bool:
    """Return whether `given` is a list of lists of messages."""
    return isinstance(given, (list, tuple)) and bool(given) and all(isinstance(one, (list, tuple)) for one in given)


def messages_of(given: Any) -> list[Message]:
    """A conversation: messages, one message, or a text, which is what the user says. BadInput for anything else."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages = [given] if isinstance(given, Mapping) else _plain(given)
    needed = "messages such as {'role': 'user', 'content': 'Hello'}, or a text"
    if not isinstance(messages, list) or not messages:
        raise BadInput("chat", "messages", "none" if messages == [] else type(given).__name__, needed)
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise BadInput("chat", "messages", repr(message)[:100], needed)
    return messages
