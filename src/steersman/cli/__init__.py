"""The command `steersman`: a front door. It owns no loop behaviour, and each part of it loads only what it needs."""
