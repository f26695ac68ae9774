"""Rules of the protocol that are cited by number can be looked up."""

import re

from . import tree

RULE = re.compile(r"\b[rR]ules? (?:of the protocol )?((?:[LFAPIRS]\d{1,2}(?:, | and | to )?)+)")
ANY = re.compile(r"(?<![\w%.])[LFAPIRSD]\d{1,2}(?![\w.])")
WHERE = ("barco/", "workers/", "native/", "tests/simulator/", "tests/faults/", "tests/workers/")


def promised(page: str) -> list[str]:
    """The promises in the table of a page, in its order."""
    return re.findall(r"^\| (D\d) \|", (tree.ROOT / page).read_text("utf-8"), re.MULTILINE)


def known() -> set[str]:
    """D1 to D9 are in the table of docs/promises.md, the others in docs/protocol.md as `**L1**`."""
    promises = promised("docs/promises.md")
    page = (tree.ROOT / "docs" / "protocol.md").read_text("utf-8")
    rules = re.findall(r"^- \*\*([LFAPIRS]\d{1,2})\*\* ", page, re.MULTILINE)
    assert len(rules) == len(set(rules)), "a number stands for one rule"
    return {*promises, *rules}


def cited(text: str) -> set[str]:
    """In words ("rule S5", "rules A1 to A4"), in brackets, and after a colon: (D9), (S3, S5)."""
    found = [name for each in RULE.findall(text) for name in ANY.findall(each)]
    for inside in re.findall(r"\(([LFAPIRSD]\d{1,2}(?:, [LFAPIRSD]\d{1,2})*)\)", text):
        found += inside.split(", ")
    return set(found)


def test_cited_rules_exist() -> None:
    rules = known()
    wrong = []
    for path in tree.files():
        name = tree.relative(path)
        if path.suffix not in (".py", ".c", ".h") or not name.startswith(WHERE):
            continue
        unknown = sorted(cited(path.read_text("utf-8")) - rules)
        wrong += [f"{name}: rule {rule} is not in docs/protocol.md" for rule in unknown]
    assert not wrong, "\n".join(wrong)


def test_the_readme_names_every_promise() -> None:
    assert promised("README.md") == promised("docs/promises.md") == [f"D{n}" for n in range(1, 10)]


def test_rules_are_found() -> None:
    assert {"L1", "L6", "I14", "S8", "D9", "A4"} <= known()
    assert cited("rules P2 to P4; storage rule S5, (D2) and (S3, S9)") == {
        *("P2", "P4", "S5", "D2", "S3", "S9"),
    }
    assert "S9" not in known() and "L7" not in known()
