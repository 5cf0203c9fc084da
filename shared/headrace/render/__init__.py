"""Messages to tokens, one renderer for the gateway and for SFT. Knows no torch and no transformers."""

from headrace.render.renderer import Renderer
from headrace.render.spans import RenderedConversation, assistant_spans

__all__ = ["RenderedConversation", "Renderer", "assistant_spans"]
