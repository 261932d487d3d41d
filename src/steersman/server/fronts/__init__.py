"""Fronts: other protocols around the same log. Each is a pure function of records and events, with a thin route.

A front owns no state of a conversation. Where a client sends its whole history again, only what is new at its end
counts. A question that is already answered ignores a second answer.
"""
