"""Which form a model's calls have: asked for by a flag of `serve`, or told by its chat template and vocabulary."""

from __future__ import annotations

from samebits.loaders import Tokenizer
from samebits.server.tools.form import CallForm
from samebits.server.tools.gemma import CODE, START, Gemma
from samebits.server.tools.gpt_oss import GptOss
from samebits.server.tools.hermes import Hermes
from samebits.server.tools.llama3 import TAG, Llama3
from samebits.server.tools.mistral import ARGS, CALLS, Mistral, NewMistral

FORMS: dict[str, CallForm] = {
    form.name: form for form in (Hermes(), Llama3(), Mistral(), NewMistral(), GptOss(), Gemma())
}
DEFAULT = Hermes.name
# The first text that a chat template holds tells its form; a vocabulary with marks of messages is gpt-oss's.
TOLD_BY: tuple[tuple[str, str], ...] = (
    ("<tool_call>", Hermes.name),
    (ARGS, NewMistral.name),
    (CALLS, Mistral.name),
    (TAG, Llama3.name),
    ('"parameters": dictionary of argument name', Llama3.name),  # Llama 3.2's, which does without the mark
    (START, Gemma.name),
    (CODE, Gemma.name),
)


def form_for(template: str, tokenizer: Tokenizer) -> CallForm:
    """The form that a model's template and vocabulary tell, or the default."""
    if tokenizer.special.marks is not None:
        return FORMS[GptOss.name]
    return FORMS[next((name for text, name in TOLD_BY if text in template), DEFAULT)]
