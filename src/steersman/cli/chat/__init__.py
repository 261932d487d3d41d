"""The interactive chat. It owns no loop behaviour; it uses only the public methods of `Agent`."""
