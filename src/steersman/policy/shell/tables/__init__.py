"""What is known about programs: which of their options are harmless. Plain data, read by `policy.shell.table`."""
