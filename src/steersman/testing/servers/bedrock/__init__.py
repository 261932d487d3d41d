"""The strict Bedrock server: `server` plays the script in binary frames; `request` validates requests."""
