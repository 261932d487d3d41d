"""The strict Chat Completions server: `server` plays the script; `request` and `messages` validate requests."""
