"""Who may do what: patterns, grants, decisions and the table, by what they mean."""

import itertools

import pytest

from barco import limits
from barco.errors import ConflictError, RequestError, TooManyRequestsError
from barco.model.access import (
    EVERY,
    EVERYBODY,
    ON_GROUPS,
    ON_TOPICS,
    VERBS,
    AccessTable,
    Grant,
    Quota,
    User,
    hash_of,
    matches,
)

TOKEN = "barco_" + "a" * 43
ADMIN = User("root", (hash_of(TOKEN),), (Grant("users"),))
TOPICS = ("a", "ab", "abc", "b", "a.b", EVERY)
PATTERNS = ("a", "ab", "a*", "ab*", "b*", "a.*", EVERY)


def user(name: str, *grants: str) -> User:
    return User.checked(name, [hash_of(name)], list(grants))


def means(pattern: str, name: str) -> bool:
    """What a pattern says, told in another way: the set of beginnings that it takes."""
    if not pattern.endswith("*"):
        return pattern == name
    return pattern[:-1] in {name[:length] for length in range(len(name) + 1)}


def test_patterns() -> None:
    for pattern, name in itertools.product(PATTERNS, TOPICS):
        assert matches(pattern, name) == means(pattern, name), (pattern, name)
    assert not matches("a*", EVERY) and matches(EVERY, EVERY)


def test_every_verb_gives_itself_and_nothing_else() -> None:
    for granted, asked in itertools.product(VERBS, VERBS):
        text = granted + ":*" * ((granted in ON_TOPICS) + (granted in ON_GROUPS))
        who = user("who", text)
        topic = EVERY if asked in ON_TOPICS else None
        group = EVERY if asked in ON_GROUPS else None
        assert who.may(asked, topic, group) == (granted == asked), (granted, asked)


def test_both_objects_are_of_one_grant() -> None:
    """Two grants are not the product of their objects."""
    who = user("who", "consume:a:g", "consume:b:h")
    found = {
        (topic, group)
        for topic, group in itertools.product("ab", "gh")
        if who.may("consume", topic, group)
    }
    assert found == {("a", "g"), ("b", "h")}
    assert who.may("consume", "a") and not who.may("consume", "c")
    assert who.may("consume", group="h") and not who.may("consume", group="x")
    assert not who.may("admin", "a", "g")


def test_nothing_is_granted_unasked() -> None:
    who = user("who")
    assert not any(who.may(verb) for verb in VERBS)
    assert all(EVERYBODY.may(verb) for verb in VERBS)


@pytest.mark.parametrize(
    "text",
    ("", "all", "produce", "produce:", "produce:a:b", "metrics:a", "users:*", "consume:a:b:c")
    + ("produce:a*b", "produce:a b", "produce:ä", "Produce:a", "consume:a:", "consume:a:g h", "*")
    + ("produce:" + "a" * 128, "consume:a:" + "g" * 129, "produce:a\n"),
)
def test_what_is_no_grant(text: str) -> None:
    with pytest.raises(RequestError):
        Grant.parse(text)


@pytest.mark.parametrize(
    "text",
    ("produce:a", "produce:*", "consume:a.*:g-*", "admin:*:*", "metrics", "users", "cluster"),
)
def test_grants_are_spelt_as_they_are_read(text: str) -> None:
    assert str(Grant.parse(text)) == text
    assert str(Grant.parse("consume:a")) == "consume:a:*"


@pytest.mark.parametrize("name", ("", "a b", "a:b", "a/b", "ä", "a" * 33, None, 7, "a\n"))
def test_what_is_no_user(name: object) -> None:
    with pytest.raises(RequestError):
        User.checked(name, [hash_of("x")], [])


@pytest.mark.parametrize("hashes", ([], [b"short"], ["x" * 32], [bytes(32)] * 3, bytes(32)))
def test_what_is_no_token(hashes: object) -> None:
    with pytest.raises(RequestError):
        User.checked("a", hashes, [])


def test_names_of_two_users_never_meet() -> None:
    names = [user(who, "metrics").own(name) for who in ("a", "b") for name in ("x", "a:x", "b:x")]
    assert len(set(names)) == len(names)
    assert EVERYBODY.own("x") == "x"


def test_a_token_is_found_and_another_is_not() -> None:
    table = AccessTable.of([ADMIN, user("b", "metrics")])
    assert table.find(TOKEN) == ADMIN
    assert table.find("b") is table.users["b"]
    for wrong in ("", TOKEN[:-1], TOKEN + "a", TOKEN.upper(), "ä", "\u20ac"):
        assert table.find(wrong) is None


def test_changes_of_the_table() -> None:
    table = AccessTable().with_user(ADMIN)
    more = table.with_user(user("b", "produce:*"))
    assert (table.version, more.version, set(more.users)) == (1, 2, {"root", "b"})
    assert set(more.without("b").users) == {"root"}
    with pytest.raises(ConflictError, match="one user keeps that"):
        more.without("root")
    with pytest.raises(ConflictError, match="one user keeps that"):
        more.with_user(User("root", ADMIN.hashes))
    with pytest.raises(ConflictError, match="Another user"):
        more.with_user(User("c", ADMIN.hashes))
    assert more.with_user(user("c", "users")).without("root").find(TOKEN) is None


def test_users_are_bounded() -> None:
    table = AccessTable.of([ADMIN, *(user(f"u{n}") for n in range(limits.USERS_MAX - 1))])
    with pytest.raises(TooManyRequestsError):
        table.with_user(user("more"))
    assert table.with_user(user("u1", "metrics")).version == 1


def test_plain_and_back() -> None:
    table = AccessTable.of([ADMIN, user("b", "produce:a*", "consume:b:g")], 7)
    assert AccessTable.from_plain(table.to_plain()) == table


@pytest.mark.parametrize(
    "given",
    (None, [], {}, {"version": 1}, {"version": -1, "users": []}, {"version": True, "users": []})
    + ({"version": 1, "users": {}}, {"version": 1, "users": [["a"]]}, {"version": 1, "users": [7]})
    + ({"version": 1, "users": [ADMIN.to_plain()] * 2}, {"version": 2**63, "users": []})
    + ({"version": 1, "users": [["a", [bytes(32)], ["all"]]]},)
    + ({"version": 1, "users": [["a", [bytes(32)], []], ["b", [bytes(32)], []]]},),
)
def test_what_is_no_table(given: object) -> None:
    with pytest.raises(ValueError, match=r"table|version"):
        AccessTable.from_plain(given)


def test_documents_have_no_secrets() -> None:
    told = str(ADMIN.described())
    assert TOKEN not in told and hash_of(TOKEN).hex() not in told and "root" in told


def test_quotas_are_kept_and_told_to_the_core() -> None:
    user = User.checked("q", [hash_of("q"), hash_of("r")], ["produce:t"], [7, 9])
    assert user.quota == Quota(7, 9) and User.checked(*user.to_plain()) == user
    assert User.checked("q", [hash_of("q")], []).quota == Quota()  # As it was kept before.
    entries = AccessTable.of([ADMIN, user]).for_core()
    at = entries.index(hash_of("r")) + 64
    assert entries[at : at + 2] == (1).to_bytes(2, "little")
    assert [entries[at + 2 + 8 * n] for n in range(2)] == [7, 9]
    for wrong in (
        [1],
        [0] * 7,
        [0, 0, -1],
        [*[0] * 5, True],
        [-1, 0],
        [0, 2**40 + 1],
        [0, 1.0],
        [True, 0],
        None,
        "ab",
    ):
        with pytest.raises(RequestError):
            User.checked("q", [hash_of("q")], [], wrong)


def test_what_a_user_may_have_is_kept_so_that_an_earlier_version_understands_it() -> None:
    """As long as it is not used; and the core is told what it counts."""
    for given, kept in (
        ((7, 9), [7, 9]),
        ((0, 0, 5), [0, 0, 5]),
        ((0, 0, 0, 2**33, 0, 0), [0, 0, 0, 2**33]),
        ((1, 2, 3, 4, 5, 6), [1, 2, 3, 4, 5, 6]),
    ):
        user = User.checked("q", [hash_of("q")], [], given)
        assert user.quota.to_plain() == kept and User.checked(*user.to_plain()) == user
        assert list(user.quota.described().values()) == list(given) + [0] * (6 - len(given))
    for quota, connections, known_topics in (
        ((1, 1), 0, 0),
        ((0, 0, 77), 77, 0),
        ((0, 0, 2**33, 1), 2**32 - 1, 1),
        ((0, 0, 0, 0, 9, 9), 0, 0),
    ):
        user = User.checked("q", [hash_of("q")], ["produce:t"], quota)
        entry = AccessTable.of([user]).for_core()
        assert int.from_bytes(entry[82:86], "little") == connections
        assert entry[86:] == bytes((known_topics,)) + b"\x01\x00\x01t"
