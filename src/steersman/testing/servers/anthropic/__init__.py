"""The strict Anthropic Messages server: `server` plays the script; `request` and `messages` validate requests."""
