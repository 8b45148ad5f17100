"""Models from files that nobody vouches for: weights, tokenizers, chat templates, and where to get them."""

from samebits.loaders.chat import ChatTemplate
from samebits.loaders.tokenizer import SpecialTokens, TextStream, Tokenizer

__all__ = ["ChatTemplate", "SpecialTokens", "TextStream", "Tokenizer"]
