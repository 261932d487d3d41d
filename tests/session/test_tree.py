"""The tree of a session: ways through it, what they share, and what is known of it without its words."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from steersman.session.index import Index
from steersman.session.records import Record, encode
from steersman.session.stores.store import SessionError
from steersman.session.tree import Branch, Difference, Node, Tree


def grown(*edges: tuple[str, str | None]) -> Tree:
    """A tree of these nodes, each with the one it follows."""
    tree = Tree()
    for seq, (id, parent) in enumerate(edges, 1):
        tree.add(Node(id, parent, seq, "message", float(seq)))
    return tree


FORKED = (("a", None), ("b", "a"), ("c", "b"), ("d", "b"), ("e", "d"), ("f", "a"))


def read(*found: tuple[str, str | None, str, dict[str, Any]]) -> Index:
    """What is known from these records."""
    index = Index()
    lines = [
        (seq, encode(Record(id, parent, seq, type, float(seq), payload)))
        for seq, (id, parent, type, payload) in enumerate(found, 1)
    ]
    index.read(lines)
    return index


def test_a_path_leads_from_the_beginning_to_an_entry() -> None:
    tree = grown(*FORKED)
    assert [node.id for node in tree.path_to("e")] == ["a", "b", "d", "e"]
    assert [node.id for node in tree.path_to()] == ["a", "f"]
    assert [node.id for node in tree.path_to("e.3")] == ["a", "b", "d", "e"]
    assert Tree().path_to() == []
    with pytest.raises(SessionError, match="No entry 'x'"):
        tree.path_to("x")


def test_the_branches_of_a_tree() -> None:
    tree = grown(*FORKED)
    tree.labels.update({"a": "root", "d": "other", "c": "first"})
    assert tree.list_branches() == [
        Branch("c", 3, "b", "first", 3.0, current=False),
        Branch("e", 4, "b", "other", 5.0, current=False),
        Branch("f", 2, "a", None, 6.0, current=True),
    ]
    tree.move_to("b")
    assert [(branch.leaf, branch.current) for branch in tree.list_branches()] == [
        ("b", True),
        ("c", False),
        ("e", False),
        ("f", False),
    ]


def test_a_tree_may_have_several_roots() -> None:
    tree = grown(("a", None), ("b", None))
    assert [(branch.leaf, branch.length, branch.fork) for branch in tree.list_branches()] == [
        ("a", 1, None),
        ("b", 1, None),
    ]
    assert tree.compare("a", "b") == Difference(None, ["a"], ["b"])


def test_what_two_branches_share() -> None:
    tree = grown(*FORKED)
    assert tree.compare("c", "e") == Difference("b", ["c"], ["d", "e"])
    assert tree.compare("e", "b") == Difference("b", ["d", "e"], [])
    assert tree.compare("f", "f") == Difference("f", [], [])


def test_the_last_used_branch_through_an_entry() -> None:
    tree = grown(*FORKED)
    assert [tree.find_last_below(id) for id in "abcdef"] == ["f", "e", "c", "e", "e", "f"]


def test_ids_that_follow_one_another_here_too() -> None:
    tree = grown(*FORKED)
    assert [tree.count_shared(list(ids)) for ids in ("abde", "abdx", "abe", "bd", "", "x")] == [4, 3, 2, 0, 0, 0]


def test_what_followed_an_unusable_entry_follows_the_one_before_it() -> None:
    tree = grown(*FORKED)
    tree.drop(["b"])
    assert [node.id for node in tree.path_to("e")] == ["a", "d", "e"]
    tree.drop(["f"])
    assert tree.tip == "a"
    tree.changes = [(1, "e"), (2, "d"), (3, None)]
    tree.drop(["a", "d", "e"])
    assert [(node.id, node.parent) for node in tree.nodes.values()] == [("c", None)]
    assert (tree.tip, tree.changes) == (None, [(1, None), (2, None), (3, None)])


def test_thousands_of_unusable_entries_are_left_out_in_one_go() -> None:
    """A file that somebody else wrote may have any number of them."""
    ids = [str(number) for number in range(20_000)]
    tree = grown(*((id, str(number) if number else None) for number, id in enumerate(ids[1:])), ("end", ids[-1]))
    began = process_time()
    tree.drop(ids[1:])
    assert process_time() - began < 2  # a tenth of a second on an idle machine
    assert [(node.id, node.parent) for node in tree.nodes.values()] == [("end", None)]


def test_an_entry_is_found_by_its_label_unless_that_is_an_id() -> None:
    tree = grown(*FORKED)
    tree.labels.update({"c": "here", "d": "a"})
    assert [tree.resolve(name) for name in ("here", "a", "nowhere")] == ["c", "a", "nowhere"]


def test_where_the_session_stands_is_the_last_entry_or_where_it_was_moved_to() -> None:
    message: dict[str, Any] = {"message": {}}
    index = read(("a", None, "message", message), ("b", "a", "message", message), ("r", "b", "leaf", {"target": "a"}))
    assert (index.tree.tip, index.tree.moves, index.problems) == ("a", 1, [])
    index = read(("a", None, "message", message), ("r", "a", "leaf", {"target": None}), ("b", None, "message", message))
    assert (index.tree.tip, index.tree.nodes["b"].parent) == ("b", None)


def test_what_waits_is_known_until_it_is_heard_or_taken_back() -> None:
    item: dict[str, Any] = {"kind": "steering", "message": {}, "mode": None, "key": None}
    keyed = {**item, "key": "k"}
    index = read(
        ("q1", None, "accepted", item),
        ("q2", None, "accepted", keyed),
        ("q3", None, "accepted", item),
        ("q4", None, "accepted", item),
        ("m", None, "message", {"message": {}, "queue_id": "q2"}),
        ("d", "m", "delivered", {"queue_id": "q2", "entry_id": "m"}),
        ("x", "m", "delivered", {"queue_id": "q3", "entry_id": "m"}),
        ("r", "m", "returned", {"queue_id": "q4"}),
    )
    assert (index.waiting, index.delivered_keys) == ({"q1": item}, {"k": keyed})


def test_what_is_said_in_a_run_is_told_from_what_is_brought_from_outside() -> None:
    message: dict[str, Any] = {"message": {}}
    start = {"agent_id": "agent", "loop_id": "loop", "continuation_kind": {"kind": "branch", "tag": "idea"}}
    index = read(
        ("a", None, "message", message),
        ("s", "a", "run_start", start),
        ("b", "a", "message", message),
        ("e", "b", "run_end", {}),
        ("c", "b", "message", message),
        ("t", "c", "run_start", start),
        ("l", "c", "leaf", {"target": "b"}),
        ("d", "b", "message", message),
    )
    assert {id: node.own for id, node in index.tree.nodes.items()} == {"a": False, "b": True, "c": False, "d": False}
    assert (index.agent_id, index.loop_id, index.tree.labels, index.running) == ("agent", "loop", {"b": "idea"}, False)
    assert (
        read(("s", None, "run_start", start), ("b", None, "message", message), ("i", "b", "imported", {}))
        .tree.nodes["b"]
        .own
        is False
    )


def test_lines_that_are_no_records_are_told_and_passed_over() -> None:
    index = Index()
    index.read([(1, b"{"), (2, b"\xff"), (3, encode(Record("a", None, 3, "message", 3.0, {"message": {}})))])
    assert [text.partition(":")[0] for text in index.problems] == [
        "Record 1 cannot be read and is left out",
        "Record 2 cannot be read and is left out",
    ]
    assert list(index.tree.nodes) == ["a"]
