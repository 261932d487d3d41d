"""The OpenAI Chat Completions API and its many compatible servers."""
