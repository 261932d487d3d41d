"""The interactive chat. It owns no loop behaviour; everything it does, `Agent` offers to every caller."""
