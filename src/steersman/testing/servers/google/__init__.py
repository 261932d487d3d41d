"""The strict Gemini server: `server` plays the script; `request` and `messages` validate requests."""
