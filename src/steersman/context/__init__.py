"""What has been said and what is shown: one ordered log, never rewritten; everything else is a view of it."""
