"""The strict OpenAI Responses server: `server` plays the script, `request` and `messages` check what the real API checks."""
