"""The command `steersman`. It owns no loop behaviour, and each part imports only what it needs."""
