"""What tools may touch: files beneath a root, a clean environment, a sandbox, addresses. A check that fails refuses."""
