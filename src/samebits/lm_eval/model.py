"""lm-eval's model `samebits`: a model of ours in lm-eval's process, with the numbers that our server would give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import lm_eval.models  # noqa: F401  (lm-eval lists its own models only while there are none)
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from samebits import NUMERICS_VERSION, __version__
from samebits.api.llm import LLM, SamplingParams
from samebits.api.requests import one_params
from samebits.core.arguments import flag, whole_number
from samebits.core.errors import BadInput
from samebits.core.sampling_defaults import NEUTRAL_NAME
from samebits.lm_eval.scoring import Batches, continuation
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.loaders.chat import FROZEN_TIME

WHERE = "lm-eval"
SEED = 1234  # lm-eval's own for servers
Encoded = tuple[Any, list[int], list[int]]  # what was asked, and the ids of a context and its continuation


@register_model("samebits")
class SamebitsLM(TemplateLM):  # type: ignore[misc]
    """A model, as `--model_args model=smollm2,numerics=portable` names it; other arguments are those of `LLM`.

    batch_size     requests given to the engine at once; results do not depend on it
    max_length     tokens of a request, one of them for the answer; the model's context if absent
    max_gen_toks   of an answer, where a task does not say
    add_bos_token  whether the model's own first token is added to texts, as the model's file wants it if absent
    seed           of draws, in tasks that draw
    sampling_defaults  "neutral" if absent: scores must not depend on what a model's makers recommend
    device         has no effect: lm-eval names one of torch's even where none is asked for; `backend` says where to run
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        batch_size: int | str = 1,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool = True,
        seed: int = SEED,
        max_batch_size: int | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.model = model
        self.llm = LLM(model, **{"sampling_defaults": NEUTRAL_NAME, **options})
        longest, most = self.llm.engine.max_len, self.llm.runner.limits.max_sequences
        size = max_batch_size or most if batch_size == "auto" else batch_size
        size = int(size) if isinstance(size, str) and size.isdecimal() else size
        self.batches = Batches(self.llm, whole_number(WHERE, "batch_size", size, 1, 1 << 20))
        length = longest if max_length is None else whole_number(WHERE, "max_length", max_length, 3, longest)
        self.max_length = length - 1  # a server draws one token behind what it scores
        self._max_gen_toks = whole_number(WHERE, "max_gen_toks", max_gen_toks, 1, longest)
        self._adds_special, self._seed = flag(WHERE, "add_bos_token", add_bos_token), seed

    @property
    def eot_token_id(self) -> int | None:
        return self.llm.tokenizer.special.eos

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without a context."""
        special = self.llm.tokenizer.special
        found = special.eos if special.bos is None else special.bos
        if found is None:
            raise BadInput(WHERE, "context", "none", "a text: the model has no token for the start of one")
        return found

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """The text's ids; a template's text that begins with the first token gets no other."""
        tokenizer = self.llm.tokenizer
        first = tokenizer.token_text(tokenizer.special.bos)
        adds = self._adds_special if add_special_tokens is None else add_special_tokens
        return tokenizer.encode(string, adds and not (first and string.startswith(first)))

    def _loglikelihood_tokens(
        self, requests: Sequence[Encoded], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Of each continuation; the start of what is longer than `max_length` is left out."""
        texts, contexts = [], []
        for _asked, context, following in requests:
            if len(following) >= self.max_length:
                raise BadInput(WHERE, "continuation", f"{len(following)} tokens", f"fewer than {self.max_length}")
            whole = [*context, *following][-self.max_length :]
            texts.append(whole)
            contexts.append(len(whole) - len(following))
        results = []
        scores = tqdm(self.batches.scores(texts), total=len(texts), desc="scores", disable=disable_tqdm)
        for (asked, *_rest), score, num_context in zip(requests, scores, contexts, strict=True):
            results.append(continuation(score, num_context))
            if asked is not None:
                self.cache_hook.add_partial("loglikelihood", asked, results[-1])
        return results

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Of whole texts, in windows as lm-eval cuts them."""
        results = []
        for (text,) in tqdm([request.args for request in requests], desc="texts", disable=disable_tqdm):
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(text, add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1,
                context_len=1,
            )
            encoded = [(None, *make_disjoint_window(window)) for window in windows]
            results.append(sum(value for value, _ in self._loglikelihood_tokens(encoded, disable_tqdm=True)))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), results[-1])
        return results

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """An answer to each context, up to the texts that its task names."""
        asked = [request.args for request in requests]
        params = [self._params(options) for _, options in asked]
        prompts = [
            self.tok_encode(context)[-max(1, self.max_length - wish.max_tokens) :]
            for (context, _), wish in zip(asked, params, strict=True)
        ]
        results = []
        answers = tqdm(
            self.batches.completions(prompts, params), total=len(asked), desc="answers", disable=disable_tqdm
        )
        for request, answer in zip(asked, answers, strict=True):
            results.append(answer.text)
            self.cache_hook.add_partial("generate_until", request, answer.text)
        return results

    def _params(self, options: Mapping[str, Any]) -> SamplingParams:
        """A task's generation_kwargs, read as lm-eval reads them for servers; BadInput for a name that is not known."""
        left = {name: value for name, value in options.items() if name not in ("do_sample", "until", "max_gen_toks")}
        until = options.get("until") or ()
        eos = self.llm.tokenizer.token_text(self.eot_token_id)
        stops: Iterable[str] = (until,) if isinstance(until, str) else until
        wishes = {"max_tokens": options.get("max_gen_toks", self._max_gen_toks), "temperature": 0.0, "seed": self._seed}
        return one_params(
            WHERE,
            {**wishes, **left, "stop": tuple(s for s in dict.fromkeys((*stops, eos)) if s), "hash_logits": True},
        )

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as text; without a prompt for an answer, the last message goes on. Its clock stands still."""
        template, tokenizer = self.llm.chat_template, self.llm.tokenizer
        if template is None:
            raise BadInput(WHERE, "apply_chat_template", "a model without a chat template", "one that carries it")
        options: dict[str, Any] = {"now": FROZEN_TIME, "special_tokens": tokenizer.special_texts}
        if add_generation_prompt:
            return template.render(chat_history, **options)
        return template.render_to_continue(chat_history, **options)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self.llm.chat_template.source if chat_template and self.llm.chat_template else None

    @property
    def tokenizer_name(self) -> str:
        return f"samebits-{self.model}".replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval adds to its results: all that decides them, and the hash over the logits of all requests."""
        return {
            "samebits_version": __version__,
            "numerics_version": NUMERICS_VERSION,
            "numerics": self.llm.numerics,
            "backend": self.llm.runner.backend.name,
            "logits_sha256": self.batches.sha256,
        }
