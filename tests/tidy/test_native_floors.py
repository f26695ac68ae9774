"""native/: a folder is a floor, and nothing includes or calls upward; circles are known by name."""

from . import graph, native

CIRCLES: tuple[set[str], ...] = (
    # The engines call the loop back through what a connection is (a transport hears of what came
    # and what went), and whoever sends or keeps may find that the connection has to end. A queue of
    # ends would cut that, and each of these would go on with a connection that is gone.
    {
        "loop/conn",
        "loop/loop",
        "loop/net_epoll",
        "loop/net_uring",
        "loop/output",
        "loop/send",
        "loop/transport",
    },
)
"""Units that know each other, for a reason. No other circle, and none that is larger."""


def test_nothing_reaches_upward() -> None:
    wrong = [f"{name}: {what}" for name, what in sorted(native.upward(native.sources()))]
    assert not wrong, "\n".join(wrong)


def test_circles_are_known() -> None:
    found = graph.circles(native.units(native.sources()))
    new = [circle for circle in found if not any(set(circle) <= known for known in CIRCLES)]
    assert not new, new
    gone = [known for known in CIRCLES if not any(set(circle) <= known for circle in found)]
    assert not gone, f"take these out of CIRCLES: {gone}"


def test_no_function_that_only_tests_reach() -> None:
    """Each is named once more than where it is declared and defined, or Python calls it."""
    wrong = [f"{name}: {each}" for name, each in native.unreached(native.sources())]
    assert not wrong, "\n".join(wrong)
    lone = {"base/a.c": "int lone(void)\n{\n    return 1;\n}\n", "base/a.h": "int lone(void);\n"}
    assert native.unreached(lone) == [("base/a.c", "lone")]
    assert not native.unreached(lone | {"log/b.c": "int lone_user = lone();\n"})


def test_only_the_binding_knows_python() -> None:
    wrong = [
        name
        for name, text in native.sources().items()
        if "Python.h" in native.plain(text) and not name.startswith("python/")
    ]
    assert not wrong, wrong


def test_headers_are_named_with_their_folder() -> None:
    wrong = [
        f"{name}: {header}"
        for name, text in native.sources().items()
        for header in native.includes(text)
        if header not in native.sources()
    ]
    assert not wrong, "\n".join(wrong)


def test_the_scanner_sees_what_it_is_for() -> None:
    above = "int upper(int x)\n{\n    return x;\n}\n"
    field = "int user(struct s *s)\n{\n    int upper;\n    return s->upper + s->x.upper;\n}\n"
    own = "static int upper(int x)\n{\n    return x;\n}\nint f(void)\n{\n    return upper(1);\n}\n"
    for lower, found in (
        ("int user(void)\n{\n    return upper(1);\n}\n", True),
        ("void user(void)\n{\n    table.ask = upper;\n}\n", True),
        ("void user(void)\n{\n    say(upper, 1);\n}\n", True),
        ('void user(void)\n{\n    /* upper(1) */\n    say("upper(1)");\n}\n', False),
        ("void user(void)\n{\n    table.upper(1);\n}\n", False),
        (field, False),
        (own, False),
    ):
        files = {"base/lower.c": lower, "log/upper.c": above}
        assert bool(native.upward(files)) is found, lower
        assert not native.upward({"log/lower.c": lower, "base/upper.c": above})
    assert native.upward({"http/a.c": '#include "broker/b.h"\n', "broker/b.h": ""})
