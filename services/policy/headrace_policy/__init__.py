"""The policy: an OpenAI-compatible gateway that captures exact tokens, and the vLLM engine behind it."""
