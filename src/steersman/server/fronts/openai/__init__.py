"""The two APIs of OpenAI: Responses, and Chat Completions. Tools that a client declares are called by the client."""
