"""The strict OpenAI Responses server: `server` plays the script; `request` and `messages` validate requests."""
