"""The parser rows of the attack list: what is thrown at the HTTP port, and what it answers.

Each attack is (row, name, bytes, outcome). The outcome is the status of the refusal, or "accepted",
or for a chunked body "complete", "malformed", "too large" or "partial". Attacks of up to 4 KiB are
also the seeds of the fuzzer, as files in native/fuzz/corpus/http1; write them anew with
`python tests/native/test_http1.py`.
"""

from __future__ import annotations

import pathlib
import random
from typing import Any

import barco_faces
import pytest

CORPUS = pathlib.Path(__file__).parents[2] / "native" / "fuzz" / "corpus" / "http1"
CORPUS_BYTES_MAX = 4096
BODY_BYTES_MAX = 64 * 1024
PARTIAL = -2
BODY_OUTCOMES = {1: "complete", 0: "partial", -1: "malformed", -3: "too large"}

Attack = tuple[int, str, bytes, int | str]


def head(*lines: bytes, start: bytes = b"POST /topics/t HTTP/1.1", host: bool = True) -> bytes:
    """A request head of a start line, a Host and the given lines."""
    hosts = (b"Host: localhost:8080",) if host else ()
    return b"\r\n".join((start, *hosts, *lines, b"", b""))


def start(line: bytes) -> bytes:
    """A complete request with this request line."""
    return head(start=line)


def chunked(body: bytes) -> bytes:
    """A request whose body is these bytes, chunked coding included."""
    return head(b"Transfer-Encoding: chunked") + body


LENGTHS: dict[str, bytes] = {
    "plus": b"+5", "minus": b"-1", "hex": b"0x5", "underscore": b"5_0", "inner-blank": b"5 0",
    "arabic-digit": "٥".encode(), "fullwidth-digit": "５".encode(), "empty": b"", "dot": b"5.0",
    "exponent": b"1e3", "2-to-63": b"%d" % 2**63, "2-to-64": b"%d" % 2**64,
    "10-to-30": b"1" + b"0" * 30, "leading-zeros": b"0" * 1000 + b"5", "vertical-tab": b"5\x0b",
    "quoted": b'"5"', "semicolon": b"5;6",
}  # fmt: skip

CODINGS: dict[str, bytes] = {
    "xchunked": b"xchunked", "chunkedx": b"chunkedx", "then-identity": b"chunked, identity",
    "after-identity": b"identity, chunked", "identity": b"identity", "twice": b"chunked, chunked",
    "vertical-tab": b"Chunked\x0b", "empty": b"", "comma-before": b", chunked",
    "comma-after": b"chunked,", "quoted": b'"chunked"', "parameter": b"chunked;q=1",
    "tab-after": b"chunked \t", "gzip-alone": b"gzip",
    "obs-text": b"chunked\xa0", "folded": b"\r\n chunked",
    "nul": b"chunked\0", "kelvin-sign": "chun\u212aed".encode(),
}  # fmt: skip

BODIES: dict[str, tuple[bytes, str]] = {
    "good": (b"5\r\nhello\r\n0\r\n\r\n", "complete"),
    "good-extension": (b'5;a;b=c;d="e \\" ;"\r\nhello\r\n0;z\r\nT: v\r\n\r\n', "complete"),
    "pipelined": (b"1\r\nx\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n", "complete"),
    "cut-off": (b"5\r\nhel", "partial"),
    "size-minus": (b"-1\r\nx", "malformed"),
    "size-plus": (b"+1\r\nx\r\n0\r\n\r\n", "malformed"),
    "size-0x": (b"0x1\r\nx\r\n0\r\n\r\n", "malformed"),
    "size-g": (b"g\r\n", "malformed"),
    "size-underscore": (b"1_0\r\n", "malformed"),
    "size-2-to-64": (b"10000000000000000\r\n", "malformed"),
    "size-2-to-64-minus-1": (b"ffffffffffffffff\r\n", "too large"),
    "size-over-limit": (b"10001\r\n", "too large"),
    "size-sum-over-limit": (b"1\r\nx\r\n10000\r\n", "too large"),
    "size-empty": (b"\r\nx", "malformed"),
    "size-only-extension": (b";a\r\n", "malformed"),
    "size-blank-before": (b" 1\r\nx\r\n0\r\n\r\n", "malformed"),
    "size-blank-after": (b"1 \r\nx\r\n0\r\n\r\n", "malformed"),
    "size-arabic": ("١\r\nx\r\n0\r\n\r\n".encode(), "malformed"),
    "leading-zeros": (b"0" * 1_000_000 + b"1\r\nx\r\n0\r\n\r\n", "malformed"),
    "leading-zeros-17": (b"0" * 16 + b"1\r\nx\r\n0\r\n\r\n", "malformed"),
    "extension-1-mb": (b"1;" + b"a" * 1_000_000 + b"\r\nx\r\n0\r\n\r\n", "malformed"),
    "extension-in-every-chunk": (b"1;" + b"a" * 99 + b"\r\nx\r\n" + b"0\r\n\r\n", "complete"),
    "extension-sum": ((b"1;" + b"a" * 99 + b"\r\nx\r\n") * 50 + b"0\r\n\r\n", "malformed"),
    "extension-lf": (b"1;a\nb\r\nx\r\n0\r\n\r\n", "malformed"),
    "extension-quoted-lf": (b'1;a="\n"\r\nx\r\n0\r\n\r\n', "malformed"),
    "extension-quoted-crlf": (b'1;a="\r\nx\r\n0\r\n\r\n', "malformed"),
    "extension-cr": (b"1;a\rb\r\nx\r\n0\r\n\r\n", "malformed"),
    "extension-nul": (b"1;a\0\r\nx\r\n0\r\n\r\n", "malformed"),
    "size-lf": (b"1\nx\r\n0\r\n\r\n", "malformed"),
    "size-cr-cr-lf": (b"1\r\r\nx\r\n0\r\n\r\n", "malformed"),
    "no-crlf-after-data": (b"5\r\nhello0\r\n\r\n", "malformed"),
    "wrong-two-after-data": (b"5\r\nhelloXX0\r\n\r\n", "malformed"),
    "lf-after-data": (b"5\r\nhello\n0\r\n\r\n", "malformed"),
    "cr-x-after-data": (b"5\r\nhello\rX0\r\n\r\n", "malformed"),
    "lf-at-end": (b"0\r\n\n", "malformed"),
    "end-lf-lf": (b"0\n\n", "malformed"),
    "trailers-10000": (b"0\r\n" + b"t: v\r\n" * 10_000 + b"\r\n", "malformed"),
    "trailer-1-mb": (b"0\r\nt: " + b"v" * 1_000_000 + b"\r\n\r\n", "malformed"),
    "trailer-content-length": (b"0\r\nContent-Length: 5\r\n\r\n", "malformed"),
    "trailer-transfer-encoding": (b"0\r\nTransfer-Encoding: x\r\n\r\n", "malformed"),
    "trailer-host": (b"0\r\nHost: x\r\n\r\n", "malformed"),
    "trailer-connection": (b"0\r\nConnection: close\r\n\r\n", "malformed"),
    "trailer-no-colon": (b"0\r\nGET / HTTP/1.1\r\n\r\n", "malformed"),
    "trailer-folded": (b"0\r\na: b\r\n c\r\n\r\n", "malformed"),
    "trailer-nul": (b"0\r\na: \0\r\n\r\n", "malformed"),
    "trailer-bare-cr": (b"0\r\na: b\rc: d\r\n\r\n", "malformed"),
}

LINES: dict[str, tuple[bytes, int | str]] = {
    "bare-lf": (b"A: b\nC: d", 400),
    "bare-lf-end": (b"A: b\n\nGET /smuggled HTTP/1.1", 400),
    "bare-cr": (b"A: b\rTransfer-Encoding: chunked", 400),
    "cr-cr-lf": (b"A: b\r", 400),
    "fold-blank": (b"A: b\r\n c", 400),
    "fold-tab": (b"A: b\r\n\tc", 400),
    "blank-before-colon": (b"Content-Length : 5", 400),
    "tab-before-colon": (b"Content-Length\t: 5", 400),
    "blank-in-name": (b"Content Length: 5", 400),
    "nul-in-name": (b"A\0: b", 400),
    "nul-in-value": (b"A: b\0c", 400),
    "0x80-in-name": (b"A\x80: b", 400),
    "0x80-in-value": (b"A: \x80\xff", "accepted"),
    "tab-in-value": (b"A: b\tc", "accepted"),
    "del-in-value": (b"A: \x7f", 400),
    "escape-in-value": (b"A: \x1b[31m", 400),
    "empty-name": (b": b", 400),
    "empty-value": (b"A:", "accepted"),
    "no-colon": (b"A", 400),
    "only-nul": (b"\0", 400),
    "name-paren": (b"(a): b", 400),
    "underscore-length": (b"Content_Length: 5", "accepted"),
}

REQUEST_LINES: dict[str, tuple[bytes, int | str]] = {
    "1-mb": (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1", 414),
    "method-1-mb": (b"A" * 1_000_000 + b" / HTTP/1.1", 414),
    "absolute": (b"GET http://localhost:8080/topics?x=1 HTTP/1.1", "accepted"),
    "absolute-userinfo": (b"GET http://u:p@h/ HTTP/1.1", 400),
    "absolute-no-host": (b"GET http:///topics HTTP/1.1", 400),
    "absolute-ftp": (b"GET ftp://h/ HTTP/1.1", 400),
    "no-slash": (b"GET topics HTTP/1.1", 400),
    "star": (b"GET * HTTP/1.1", 400),
    "star-options": (b"OPTIONS * HTTP/1.1", "accepted"),
    "connect": (b"CONNECT h:443 HTTP/1.1", 501),
    "connect-path": (b"CONNECT /h HTTP/1.1", 501),
    "lower-case": (b"get / HTTP/1.1", "accepted"),
    "method-unknown": (b"BREW / HTTP/1.1", "accepted"),
    "method-not-token": (b"GE(T / HTTP/1.1", 400),
    "method-0x80": (b"G\x80T / HTTP/1.1", 400),
    "method-empty": (b" / HTTP/1.1", 400),
    "http-0.9": (b"GET /", 400),
    "http-0.9-named": (b"GET / HTTP/0.9", 505),
    "http-1.2": (b"GET / HTTP/1.2", 505),
    "http-2.0": (b"GET / HTTP/2.0", 505),
    "http-9.9": (b"GET / HTTP/9.9", 505),
    "http-1o1": ("GET / HTTP/1ö1".encode(), 400),
    "http-1o1-latin1": ("GET / HTTP/1ö1".encode("latin-1"), 400),
    "http-1-1": (b"GET / HTTP/1-1", 400),
    "http-11": (b"GET / HTTP/11", 400),
    "http-01.1": (b"GET / HTTP/01.1", 400),
    "http-1.10": (b"GET / HTTP/1.10", 400),
    "http-lower": (b"GET / http/1.1", 400),
    "http-arabic": ("GET / HTTP/1.١".encode(), 400),
    "two-blanks": (b"GET  / HTTP/1.1", 400),
    "tab": (b"GET\t/ HTTP/1.1", 400),
    "blank-after": (b"GET / HTTP/1.1 ", 400),
    "blank-in-target": (b"GET /a b HTTP/1.1", 400),
    "bare-cr": (b"GET /\rX: y HTTP/1.1", 400),
    "nul": (b"GET /\0 HTTP/1.1", 400),
    "fragment": (b"GET /#top HTTP/1.1", 400),
}

ATTACKS: list[Attack] = [
    (1, "length-then-chunked", head(b"Content-Length: 6", b"Transfer-Encoding: chunked"), 400),
    (1, "chunked-then-length", head(b"Transfer-Encoding: chunked", b"Content-Length: 6"), 400),
    (1, "both-on-get", head(b"Content-Length: 0", b"Transfer-Encoding: chunked",
                            start=b"GET / HTTP/1.1"), 400),
    (1, "mixed-case", head(b"content-LENGTH: 6", b"tRANSFER-encoding: cHUNKED"), 400),
    (2, "equal", head(b"Content-Length: 5", b"Content-Length: 5"), 400),
    (2, "different", head(b"Content-Length: 5", b"content-length: 6"), 400),
    (2, "list-equal", head(b"Content-Length: 5, 5"), 400),
    (2, "list-different", head(b"Content-Length: 5,6"), 400),
    *((3, name, head(b"Content-Length: " + value), 400) for name, value in LENGTHS.items()),
    (3, "blanks-around", head(b"Content-Length:  \t5 "), "accepted"),
    (3, "2-to-63-minus-1", head(b"Content-Length: %d" % (2**63 - 1)), "accepted"),
    *((4, name, head(b"Transfer-Encoding: " + value), 400) for name, value in CODINGS.items()),
    (4, "gzip-chunked", head(b"Transfer-Encoding: gzip, chunked"), 501),
    (4, "doubled", head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400),
    (4, "doubled-identity", head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
     400),
    (4, "http-1.0", head(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0"), 400),
    (4, "blank-before-colon", head(b"Transfer-Encoding : chunked"), 400),
    *((5, name, chunked(body), outcome) for name, (body, outcome) in BODIES.items()),
    *((6, name, head(line), outcome) for name, (line, outcome) in LINES.items()),
    (6, "all-lf", b"GET / HTTP/1.1\nHost: x\n\n", 400),
    (6, "empty-line-first", b"\r\n" + head(), 400),
    (6, "fold-first", b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400),
    *((7, name, start(line), outcome) for name, (line, outcome) in REQUEST_LINES.items()),
    (8, "10000-of-1-byte", head(*[b"a:"] * 10_000), 431),
    (8, "65-headers", head(*[b"a:"] * 64), 431),
    (8, "64-headers", head(*[b"a:"] * 63), "accepted"),
    (8, "one-of-10-mb", head(b"a: " + b"b" * 10_000_000), 431),
    (8, "name-of-10-mb", head(b"a" * 10_000_000 + b": b"), 431),
    (8, "32-kib", head(b"a: " + b"b" * (32768 - len(head(b"a: ")))), "accepted"),
    (8, "32-kib-and-1", head(b"a: " + b"b" * (32769 - len(head(b"a: ")))), 431),
    (9, "no-host", head(host=False), 400),
    (9, "no-host-http-1.0", head(start=b"GET / HTTP/1.0", host=False), "accepted"),
    (9, "two-hosts", head(b"Host: localhost:8080"), 400),
    (9, "two-hosts-http-1.0", head(b"Host: x", start=b"GET / HTTP/1.0"), 400),
    (9, "list", head(b"Host: a, b", host=False), 400),
    (9, "userinfo", head(b"Host: u@h", host=False), 400),
    (9, "path", head(b"Host: h/x", host=False), 400),
    (9, "blank-before-colon", head(b"Host : h", host=False), 400),
    (12, "continue", head(b"Content-Length: 5", b"Expect: 100-continue"), "accepted"),
    (12, "continue-upper", head(b"Content-Length: 5", b"Expect: 100-CONTINUE"), "accepted"),
    (12, "other", head(b"Content-Length: 5", b"Expect: 200-ok"), 417),
    (12, "empty", head(b"Content-Length: 5", b"Expect:"), 417),
    (12, "list", head(b"Content-Length: 5", b"Expect: 100-continue, x"), 417),
    (12, "doubled", head(b"Expect: 100-continue", b"Expect: 100-continue"), 417),
    (17, "over-long-utf-8-raw", start(b"GET /\xc0\xaf HTTP/1.1"), 400),
    (17, "64-kib", start(b"GET /" + b"a/" * 32768 + b" HTTP/1.1"), 414),
    (18, "100000-keys", start(b"GET /?" + b"a=1&" * 100_000 + b" HTTP/1.1"), 414),
    (18, "key-of-1-mb", start(b"GET /?partitionKey=" + b"a" * 2**20 + b" HTTP/1.1"), 414),
    (28, "preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 505),
    (28, "preface-line", b"PRI * HTTP/2.0\r\n", 505),
    (28, "preface-1.1", b"PRI * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (28, "h2c-upgrade", head(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
                             b"HTTP2-Settings: AAMAAABk"), "accepted"),
    (29, "websocket", head(b"Connection: Upgrade", b"Upgrade: websocket",
                           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                           b"Sec-WebSocket-Version: 13", start=b"GET /chat HTTP/1.1"), "accepted"),
    *((30, method.decode().lower(), start(method + b" /topics HTTP/1.1"), "accepted")
      for method in (b"HEAD", b"OPTIONS", b"TRACE")),
    (30, "tls-client-hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
]  # fmt: skip

IDS = [f"{row:02d}-{name}" for row, name, _, _ in ATTACKS]


def outcome_of(data: bytes, piece_bytes: int = 0) -> int | str:
    """What becomes of these bytes, the head and a chunked body fed in pieces of piece_bytes."""
    result: dict[str, Any] | int = PARTIAL
    fed = 0
    while result == PARTIAL and fed < len(data):
        last, fed = fed, min(fed + (piece_bytes or len(data)), len(data))
        result = barco_faces.http1_parse(data[:fed], last)
    if isinstance(result, int):
        return "partial"
    if "error_status" in result:
        assert result["error_reason"]
        return result["error_status"]
    if not result["chunked"]:
        return "accepted"
    rest = data[result["consumed"] :]
    verdict, consumed, body = barco_faces.http1_decode_chunked(rest, BODY_BYTES_MAX, piece_bytes)
    assert len(body) <= consumed <= len(rest)
    return BODY_OUTCOMES[verdict]


def accepted(data: bytes) -> dict[str, Any]:
    """The head of a request that has to be complete and good."""
    parsed = barco_faces.http1_parse(data)
    assert not isinstance(parsed, int) and "error_status" not in parsed
    return parsed


@pytest.mark.parametrize(("row", "name", "data", "outcome"), ATTACKS, ids=IDS)
def test_attack(row: int, name: str, data: bytes, outcome: int | str) -> None:
    assert outcome_of(data) == outcome


@pytest.mark.parametrize(("row", "name", "data", "outcome"), ATTACKS, ids=IDS)
def test_attack_in_pieces(row: int, name: str, data: bytes, outcome: int | str) -> None:
    # Beyond the limits everything was said before: no need to feed megabytes byte by byte.
    data = data[: 40_000 if row != 5 else 20_000]
    for piece_bytes in (1, 17) if len(data) <= CORPUS_BYTES_MAX else (1000,):
        assert outcome_of(data, piece_bytes) == outcome


def test_attack_names_are_unique() -> None:
    assert len(set(IDS)) == len(IDS)


def test_corpus_holds_every_small_attack() -> None:
    wanted = {name: data for name, data in corpus_files()}
    found = {path.name: path.read_bytes() for path in CORPUS.iterdir()}
    assert found == wanted


def test_every_prefix_is_partial() -> None:
    data = head(b"Content-Length: 5", b"X: y")
    for length in range(len(data)):
        assert barco_faces.http1_parse(data[:length]) == PARTIAL
        for last in range(length):
            assert barco_faces.http1_parse(data[:length], last) == PARTIAL
    assert accepted(data + b"hello")["consumed"] == len(data)


def test_fields() -> None:
    data = head(b"Content-Length: 5", b"X:  y \t", start=b"POST /t%20/e?k=v HTTP/1.1")
    assert accepted(data) == {
        "consumed": len(data), "method_id": 3, "method": b"POST", "path": b"/t%20/e",
        "query": b"k=v", "minor": 1, "keep_alive": True, "chunked": False,
        "expect_continue": False, "content_length": 5,
        "headers": [(b"Host", b"localhost:8080"), (b"Content-Length", b"5"), (b"X", b"y")],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "minor", "keep_alive"),
    [
        ([], 1, True),
        ([b"Connection: close"], 1, False),
        ([b"Connection: foo ,\tCLOSE"], 1, False),
        ([b"Connection: closed"], 1, True),
        ([b"Connection: keep-alive", b"Connection: close"], 1, False),
        ([b"Connection: Upgrade"], 1, True),
        ([], 0, False),
        ([b"Connection: keep-alive"], 0, True),
        ([b"Connection: Keep-Alive, close"], 0, False),
    ],
)
def test_keep_alive(lines: list[bytes], minor: int, keep_alive: bool) -> None:
    parsed = accepted(head(*lines, start=b"GET / HTTP/1.%d" % minor))
    assert (parsed["minor"], parsed["keep_alive"]) == (minor, keep_alive)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([b"Content-Length: 5"], True),
        ([b"Transfer-Encoding: chunked"], True),
        ([b"Content-Length: 0"], False),
        ([], False),
    ],
)
def test_a_100_is_due_only_before_a_body(lines: list[bytes], expected: bool) -> None:
    parsed = accepted(head(b"Expect: 100-continue", *lines))
    assert parsed["expect_continue"] is expected
    old = head(b"Expect: 100-continue", b"Content-Length: 5", start=b"POST / HTTP/1.0")
    assert accepted(old)["expect_continue"] is False


def test_upgrade_is_ignored() -> None:
    data = head(b"Connection: Upgrade", b"Upgrade: websocket", b"Content-Length: 3") + b"abc"
    parsed = accepted(data)
    assert (parsed["content_length"], parsed["keep_alive"]) == (3, True)


def test_pipelined_request_is_left_alone() -> None:
    first = chunked(b"5\r\nhello\r\n0\r\n\r\n")
    parsed = accepted(first + start(b"GET /next HTTP/1.1"))
    rest = (first + start(b"GET /next HTTP/1.1"))[parsed["consumed"] :]
    verdict, consumed, body = barco_faces.http1_decode_chunked(rest, 100)
    assert (verdict, body) == (1, b"hello")
    assert accepted(rest[consumed:])["path"] == b"/next"


# Row 17: what a path may decode to, and that no such thing is a topic.


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        (b"/../", b"/../"),
        (b"%2e%2e", b".."),
        (b"%2E", b"."),
        (b"a%2fb", b"a/b"),
        (b"a%00b", b"a\0b"),
        (b"a//b", b"a//b"),
        (b"a;b=c", b"a;b=c"),
        (b"%c0%af", b"\xc0\xaf"),
        (b"%252e", b"%2e"),
        (b"caf%C3%A9", "café".encode()),
    ],
)
def test_decoded_paths_are_no_topics(raw: bytes, decoded: bytes) -> None:
    assert barco_faces.uri_decode(raw) == decoded
    assert not barco_faces.topic_name_valid(decoded)


@pytest.mark.parametrize("raw", [b"%", b"%4", b"%zz", b"%%41", b"%u0041", b"%-1", b"a%", b"%4\0"])
def test_malformed_percent(raw: bytes) -> None:
    with pytest.raises(ValueError, match="two hexadecimal digits"):
        barco_faces.uri_decode(raw)


def test_raw_paths_are_handed_over_raw() -> None:
    for path in (b"/../x", b"/%2e%2e/x", b"//evil/x", b"/a;b", b"/a%00", b'/"<>\\^`{|}'):
        assert accepted(start(b"GET " + path + b" HTTP/1.1"))["path"] == path


# Row 18: queries.


def test_plus_is_a_space_only_where_asked() -> None:
    assert barco_faces.uri_decode(b"a+b%2B") == b"a+b+"
    assert barco_faces.uri_decode(b"a+b%2B", True) == b"a b+"


@pytest.mark.parametrize(
    ("query", "value"),
    [
        (b"partitionKey=a", b"a"),
        (b"x=1&partitionKey=a%26b&y", b"a%26b"),
        (b"partition%4Bey=a", b"a"),
        (b"partitionKey", b""),
        (b"partitionKey=", b""),
        (b"partitionKey==", b"="),
        (b"", None),
        (b"&&&", None),
        (b"PartitionKey=a", None),
        (b"partitionKey%=a", None),
        (b"xpartitionKey=a&partitionKeyx=b", None),
        (b"a=1&" * 100_000 + b"partitionKey=z", b"z"),
    ],
    ids=range(12),
)
def test_query_get(query: bytes, value: bytes | None) -> None:
    assert barco_faces.uri_query_get(query, "partitionKey") == value


@pytest.mark.parametrize(
    "query",
    [b"partitionKey=a&partitionKey=a", b"partitionKey&x&partitionKey=b",
     b"partitionKey=a&%70artitionKey=b"],
)  # fmt: skip
def test_duplicate_parameter(query: bytes) -> None:
    with pytest.raises(ValueError, match="partitionKey is there twice"):
        barco_faces.uri_query_get(query, "partitionKey")


# Row 19: topics.


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        (b"", False), (b".", False), (b"..", False), (b"...", True), (b"..a", True),
        ("tópico".encode(), False), (b"a" * 127, True), (b"a" * 128, False), (b"a b", False),
        (b"a/b", False), (b"a\0", False), (b"a\n", False), (b"__offsets", True), (b"a.B-c_9", True),
        (b"a%20", False), (b"a" * 1_000_000, False),
    ],
    ids=range(16),
)  # fmt: skip
def test_topic_name(name: bytes, valid: bool) -> None:
    assert barco_faces.topic_name_valid(name) is valid


def test_uri_decode_undoes_encoding() -> None:
    generator = random.Random(7)
    for _ in range(200):
        data = generator.randbytes(generator.randrange(100))
        assert barco_faces.uri_decode("".join(f"%{byte:02x}" for byte in data).encode()) == data


def corpus_files() -> list[tuple[str, bytes]]:
    """The attacks that are small enough to be seeds, with their file names."""
    small = (attack for attack in ATTACKS if len(attack[2]) <= CORPUS_BYTES_MAX)
    return [(f"{row:02d}-{name}", data) for row, name, data, _ in small]


if __name__ == "__main__":
    CORPUS.mkdir(parents=True, exist_ok=True)
    for path in CORPUS.iterdir():
        path.unlink()
    for name, data in corpus_files():
        (CORPUS / name).write_bytes(data)
