"""The parser against two others: h11, and llhttp (the parser of Node.js, run by httptools).

The same bytes go through all three. The rule is one-sided: whatever our parser accepts, the others
either read the same way (method, target, headers, body, where the next request starts), or refuse.
Where we refuse what one of them accepts, our reason has to be in STRICTER, and where one of them
refuses what we accept, the case has to be in LOOSER; each entry is shown by a test of its own.
BARCO_DIFFERENTIAL_COUNT sets how many mutated inputs are compared.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
from collections.abc import Callable, Iterator

import barco_faces
import h11
import httptools
import pytest

CORPUS = pathlib.Path(__file__).parents[2] / "native" / "fuzz" / "corpus" / "http1"
MUTATION_COUNT = int(os.environ.get("BARCO_DIFFERENTIAL_COUNT", "5000"))
MESSAGES_MAX = 8

Headers = tuple[tuple[bytes, bytes], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One request as a parser understood it; complete says that its body has ended."""

    method: bytes
    target: bytes
    minor: int
    headers: Headers
    body: bytes
    complete: bool
    keep_alive: bool | None = dataclasses.field(compare=False, default=None)


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What a parser made of a stream: its requests, and why it stopped.

    end: "more" (it waits for more bytes), "closed" (the connection ends here by the last request),
    "upgrade" (it would speak another protocol from here), or "refused".
    """

    messages: tuple[Message, ...]
    end: str
    reason: str = ""


def reduce_target(target: bytes) -> bytes:
    """The path and query of an absolute-form target; any other target as it is."""
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        return target
    cut = min((i for i in (rest.find(b"/"), rest.find(b"?")) if i >= 0), default=len(rest))
    return rest[cut:] if rest[cut : cut + 1] == b"/" else b"/" + rest[cut:]


def headers_of(pairs: Iterator[tuple[bytes, bytes]] | list[tuple[bytes, bytes]]) -> Headers:
    """Names in lower case, values without blanks around them: the differences without meaning."""
    plain = ((bytes(name).lower(), bytes(value).strip(b" \t")) for name, value in pairs)
    # h11 hands the one coding it knows over in lower case.
    return tuple((n, v.lower() if n == b"transfer-encoding" else v) for n, v in plain)


def read_ours(data: bytes) -> Reading:
    """The stream as barco reads it."""
    messages: list[Message] = []
    while data and len(messages) < MESSAGES_MAX:
        parsed = barco_faces.http1_parse(data)
        if isinstance(parsed, int):
            return Reading(tuple(messages), "more")
        if "error_status" in parsed:
            return Reading(tuple(messages), "refused", parsed["error_reason"])
        data = data[parsed["consumed"] :]
        verdict, used, body = 1, max(0, parsed["content_length"]), b""
        if parsed["chunked"]:
            verdict, used, body = barco_faces.http1_decode_chunked(data, 2**63)
        else:
            body = data[:used]
            verdict = 1 if len(body) == used else 0
        query = b"" if parsed["query"] is None else b"?" + parsed["query"]
        messages.append(
            Message(parsed["method"], parsed["path"] + query, parsed["minor"],
                    headers_of(parsed["headers"]), body, verdict == 1, parsed["keep_alive"])
        )  # fmt: skip
        if verdict < 0:
            return Reading(tuple(messages), "refused", "the chunked body is malformed")
        if verdict == 0:
            return Reading(tuple(messages), "more")
        if not parsed["keep_alive"]:
            return Reading(tuple(messages), "closed")
        data = data[used:]
    return Reading(tuple(messages), "more")


class LlhttpReader:
    """Collects what httptools calls back with."""

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.messages: list[Message] = []
        self.open = False
        self.has_head = False

    def on_message_begin(self) -> None:
        self.open, self.has_head = True, False
        self.url, self.body = b"", b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # Not a trailer.
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.add(complete=True)
        self.open = False

    def add(self, *, complete: bool) -> None:
        self.messages.append(
            Message(self.parser.get_method(), reduce_target(self.url),
                    int(self.parser.get_http_version()[-1]), headers_of(self.headers), self.body,
                    complete, self.parser.should_keep_alive())
        )  # fmt: skip

    def read(self, data: bytes) -> Reading:
        end, reason = "more", ""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            end = "upgrade"
        except httptools.HttpParserError as error:
            end, reason = "refused", str(error) or type(error).__name__
        if self.open and self.has_head:
            self.add(complete=False)
        return Reading(tuple(self.messages), end, reason)


def read_llhttp(data: bytes) -> Reading:
    """The stream as llhttp reads it."""
    return LlhttpReader().read(data)


def read_h11(data: bytes) -> Reading:
    """The stream as h11 reads it, each request answered with 404."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    messages: list[Message] = []
    request: h11.Request | None = None
    body = b""

    def finish(complete: bool) -> None:
        nonlocal request, body
        if request is not None:
            messages.append(
                Message(request.method, reduce_target(request.target),
                        int(request.http_version[-1:]), headers_of(list(request.headers)), body,
                        complete)
            )  # fmt: skip
        request, body = None, b""

    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            finish(False)
            return Reading(tuple(messages), "refused", str(error))
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            finish(True)
            connection.send(h11.Response(status_code=404, headers=[(b"Content-Length", b"0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is h11.MUST_CLOSE:
                return Reading(tuple(messages), "closed")
            connection.start_next_cycle()
        else:
            finish(False)
            return Reading(tuple(messages), "more")


PEERS: dict[str, Callable[[bytes], Reading]] = {"llhttp": read_llhttp, "h11": read_h11}


def head_of(message: Message) -> Message:
    """The message without its body."""
    return dataclasses.replace(message, body=b"", complete=False)


def difference(ours: Reading, theirs: Reading) -> str | None:
    """In one sentence how a peer frames otherwise what we accept, or None."""
    for index, message in enumerate(ours.messages):
        if index == len(theirs.messages):
            if theirs.end == "more":
                return f"request {index} is no request to them yet"
            return None  # They stopped before: refused, closed or upgraded.
        other = theirs.messages[index]
        if head_of(other) != head_of(message):
            return f"head of request {index}: {message} is {other}"
        if message.complete and message.keep_alive and other.keep_alive is False:
            return f"request {index} ends the connection for them"
        if theirs.end == "upgrade" and other is theirs.messages[-1]:
            return None  # UPGRADE below: what follows is not HTTP to them.
        refused = (other, theirs.end) if message.complete else (message, ours.end)
        if refused[1] == "refused" and not refused[0].complete:
            continue  # One of the two refused this body, at a place of its own.
        if (other.body, other.complete) != (message.body, message.complete):
            return f"body of request {index}: {message} is {other}"
    if ours.end == "more" and len(theirs.messages) > len(ours.messages):
        return f"they have {len(theirs.messages)} requests, we have {len(ours.messages)}"
    return None


def reads_on(ours: Reading, theirs: Reading) -> bool:
    """True where we refused a request and the peer has accepted at least its head."""
    if ours.end != "refused" or theirs.end == "refused":
        return False
    index = len(ours.messages)
    if ours.messages and not ours.messages[-1].complete:
        index -= 1  # Its head was fine for us too: the body was not.
    return len(theirs.messages) > index


GET = b"GET /topics/t/events?from=1&x HTTP/1.1\r\nHost: localhost:8080\r\n"
POST = b"POST /topics/t HTTP/1.1\r\nHost: localhost:8080\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"

# Read alike, to the last byte, by all three.
VALID: dict[str, bytes] = {
    "get": GET + b"\r\n",
    "headers": GET + b"Accept: */*\r\nX-Empty:\r\nx-tab:\ta\tb\t \r\nx-obs: \xe9\r\nX-2: 2\r\n\r\n",
    "post": POST + b'Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}',
    "post-empty": POST + b"Content-Length: 0\r\n\r\n",
    "post-no-length": POST + b"\r\n",
    "post-zeros": POST + b"Content-Length: 0005\r\n\r\nhello",
    "post-partial": POST + b"Content-Length: 50\r\n\r\nhello",
    "get-body": GET + b"content-length:3\r\n\r\nabc",
    "chunked": CHUNKED + b"\r\n5\r\nhello\r\n00A\r\n0123456789\r\n0\r\n\r\n",
    "chunked-extension": CHUNKED + b"\r\n1;a;b=c\r\nx\r\n0\r\n\r\n",
    "chunked-trailer": CHUNKED + b"Trailer: T\r\n\r\n1\r\nx\r\n0\r\nT: v\r\nU: w\r\n\r\n",
    "chunked-partial": CHUNKED + b"\r\n5\r\nhel",
    "chunked-empty": CHUNKED + b"\r\n0\r\n\r\n",
    "upper": CHUNKED.upper() + b"\r\n1\r\nx\r\n0\r\n\r\n",
    "pipelined": (POST + b"Content-Length: 3\r\n\r\nabc") * 3 + GET + b"\r\n",
    "pipelined-chunked": (CHUNKED + b"\r\n1\r\nx\r\n0\r\n\r\n") * 2 + GET + b"\r\n" + GET,
    "close": GET + b"Connection: close\r\n\r\n",
    "close-in-list": GET + b"Connection: foo, Close\r\n\r\n",
    "keep-alive": (GET + b"Connection: keep-alive\r\n\r\n") * 2,
    "http-1.0": b"GET / HTTP/1.0\r\n\r\n",
    "http-1.0-body": b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
    "expect": POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    "absolute": b"PUT http://h:1/p?q HTTP/1.1\r\nHost: h:1\r\n\r\n",
    "absolute-bare": b"GET http://h HTTP/1.1\r\nHost: h\r\n\r\n",
    "options-star": b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
    "delete": b"DELETE /topics/a%20b HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    "head-trace-patch": b"".join(
        m + b" /x HTTP/1.1\r\nHost: h\r\n\r\n" for m in (b"HEAD", b"TRACE", b"PATCH")
    ),
    "odd-target": b"GET //a/../b;c?d=?/&e=%zz'\"<> HTTP/1.1\r\nHost:\r\n\r\n",
}

SEEDS = {path.name: path.read_bytes() for path in sorted(CORPUS.iterdir())}

# A request that we refuse though these peers read on: (our reason, peers, bytes, why). Where h11
# refuses too, or llhttp, is not said: that is no difference.
STRICTER: list[tuple[str, str, bytes, str]] = [
    ("both Content-Length and Transfer-Encoding are given", "h11", SEEDS["01-length-then-chunked"],
     "RFC 9112 6.3 allows it and calls it an attack"),
    ("Content-Length is there twice", "h11", SEEDS["02-equal"], "9112 6.3 allows it if equal"),
    ("Content-Length is not a plain decimal number", "h11", SEEDS["02-list-equal"],
     "the same as a list"),
    ("Content-Length is not a number of at most 19 digits", "llhttp", SEEDS["03-leading-zeros"],
     "no number needs more digits"),
    ("Content-Length is not a number of at most 19 digits", "h11", SEEDS["03-2-to-64"],
     "h11 has Python's integers"),
    ("Content-Length is over 2^63 - 1", "llhttp h11", SEEDS["03-2-to-63"], "lengths are signed"),
    ('Transfer-Encoding is not exactly "chunked"', "llhttp", SEEDS["04-after-identity"],
     "identity is gone since RFC 7230"),
    ('Transfer-Encoding is not exactly "chunked"', "h11", SEEDS["04-folded"], "a folded line"),
    ("the only transfer coding understood is chunked", "llhttp", SEEDS["04-gzip-chunked"],
     "llhttp leaves the gzip to its caller"),
    ("Transfer-Encoding does not exist in HTTP/1.0", "llhttp h11", SEEDS["04-http-1.0"],
     "9112 6.1: its framing is faulty"),
    ("the chunked body is malformed", "llhttp h11", SEEDS["05-leading-zeros-17"],
     "zeros could go on for ever"),
    ("the chunked body is malformed", "llhttp h11", SEEDS["05-trailer-host"],
     "9110 6.5.1: no routing by trailers"),
    ("the chunked body is malformed", "llhttp h11",
     CHUNKED + b"\r\n" + (b"1;" + b"a" * 99 + b"\r\nx\r\n") * 50,
     "extensions are bounded for the whole body"),
    ("the chunked body is malformed", "llhttp h11", SEEDS["05-trailer-connection"],
     "llhttp would close: the end of a connection is for the head to say"),
    ("the chunked body is malformed", "h11", SEEDS["05-lf-at-end"], "LF alone ends no line here"),
    ("the chunked body is malformed", "h11", SEEDS["05-extension-cr"], "CR alone is none either"),
    ("the chunked body is malformed", "h11", SEEDS["05-size-blank-after"], "9112 7.1 has no blank"),
    ("a line ends with LF alone", "h11", SEEDS["06-bare-lf"], "9112 2.2 permits it; it smuggles"),
    ('the request line does not end with " HTTP/1.1" and CRLF', "h11", SEEDS["06-all-lf"],
     "LF alone ends no line here"),
    ('the request line does not end with " HTTP/1.1" and CRLF', "llhttp",
     b"GET /  HTTP/1.1\r\nHost: h\r\n\r\n", "9112 3: one blank"),
    ("a header value holds a control character", "h11", SEEDS["06-escape-in-value"],
     "it would reach logs and terminals"),
    ("a header is folded over two lines", "h11", SEEDS["06-fold-blank"], "obsolete since 2014"),
    ("the request does not start with a method", "llhttp", SEEDS["06-empty-line-first"],
     "empty lines would be free of limits"),
    ("the request target is empty", "llhttp", SEEDS["07-two-blanks"], "9112 3: one blank"),
    ("the request target does not start with '/'", "llhttp h11", SEEDS["07-star"],
     "* is for OPTIONS alone"),
    ("the request target does not start with '/'", "llhttp h11", SEEDS["07-absolute-ftp"],
     "this is no proxy"),
    ("the request target names no valid host", "llhttp h11", SEEDS["07-absolute-userinfo"],
     "9110 4.2.4: userinfo is an error"),
    ("CONNECT is not offered: this is not a proxy", "llhttp h11", SEEDS["07-connect"],
     "nothing after it would be HTTP"),
    ("the request target has a fragment", "llhttp h11", SEEDS["07-fragment"], "9112 3.2 has none"),
    ("the request line has no HTTP version", "llhttp", SEEDS["07-http-0.9"],
     "HTTP/0.9 has no framing"),
    ("only HTTP/1.1 and HTTP/1.0 are spoken here", "llhttp h11", SEEDS["07-http-2.0"],
     "what frames an unknown version?"),
    ("the request has more than 64 headers", "llhttp h11", SEEDS["08-65-headers"], "bounded work"),
    ("an HTTP/1.1 request needs a Host header", "llhttp", SEEDS["09-no-host"], "9112 3.2: 400"),
    ("Host is there twice", "llhttp", SEEDS["09-two-hosts"], "9112 3.2: 400"),
    ("Host is not a host name with an optional port", "llhttp h11", SEEDS["09-userinfo"],
     "9112 3.2: an invalid value is a 400"),
    ("the only expectation that can be met is 100-continue", "llhttp h11", SEEDS["12-other"],
     "9110 10.1.1: 417"),
]  # fmt: skip

# A request that a peer refuses though we accept it: (peer, its words, bytes, why).
LOOSER: list[tuple[str, str, bytes, str]] = [
    ("llhttp", "Invalid method encountered", SEEDS["07-method-unknown"],
     "any token is a method: the caller answers 501 or 405, and knows where the request ends"),
    ("llhttp", "Expected space after method", b"GETS / HTTP/1.1\r\nHost: h\r\n\r\n",
     "the same, where the method starts with a known one"),
]  # fmt: skip

# The one request that a peer frames otherwise by design: after an Upgrade, llhttp gives all that
# follows to another protocol, its caller's to choose. We never upgrade, and go on with HTTP, as
# RFC 9110 7.8 allows.
UPGRADE = POST + b"Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nhi" + VALID["get"]

PIECES = [
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b": ", b",", b";", b"\"", b"\0", b"\x0b",
    b"\x80", b"\xff", b"0", b"1", b"5", b"a", b"%", b"/", b"?", b"#", b"*", b"http://h", b"chunked",
    b"close", b"keep-alive", b"HTTP/1.0", b"HTTP/1.1", b"Content-Length: 3\r\n",
    b"Content-Length: 03\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Connection: upgrade\r\nUpgrade: x\r\n", b"Expect: 100-continue\r\n", b"Host: y\r\n",
    b"1\r\nx\r\n", b"0\r\n\r\n", b";a=b", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
]  # fmt: skip


def mutate(generator: random.Random, seeds: list[bytes]) -> bytes:
    """A seed with one to four changes: pieces put in, bytes replaced, cut out, doubled, spliced."""
    data = bytearray(generator.choice(seeds)[:1500])
    for _ in range(generator.randint(1, 4)):
        at = generator.randint(0, len(data))
        span = slice(at, at + generator.choice((1, 1, 1, 2, 8, 40)))
        change = generator.randrange(7)
        if change <= 1:
            data[at:at] = generator.choice(PIECES)
        elif change == 2:
            data[at : at + 1] = bytes((generator.randrange(256),))
        elif change == 3:
            del data[span]
        elif change == 4:
            data[at:at] = data[span]
        elif change == 5:
            data[span] = bytes(data[span]).swapcase()
        else:
            data[at:] = generator.choice(seeds)[:1500]
    return bytes(data)


def check(data: bytes) -> None:
    """Compares the three readings of some bytes by the rule of this module."""
    ours = read_ours(data)
    for name, read in PEERS.items():
        theirs = read(data)
        assert difference(ours, theirs) is None, (name, data)
        if reads_on(ours, theirs):
            known = {reason for reason, peers, _, _ in STRICTER if name in peers.split()}
            assert ours.reason in known, (name, data)
        if reads_on(theirs, ours):
            assert any(name == peer and words in theirs.reason for peer, words, _, _ in LOOSER), (
                name, theirs.reason, data,
            )  # fmt: skip


@pytest.mark.parametrize("name", VALID)
def test_valid_requests_are_read_alike(name: str) -> None:
    ours = read_ours(VALID[name])
    assert ours.messages and ours.end != "refused"
    for read in PEERS.values():
        theirs = read(VALID[name])
        assert theirs.messages == ours.messages
        # llhttp leaves closing to its caller.
        assert theirs.end == ours.end or (theirs.end, ours.end) == ("more", "closed")


@pytest.mark.parametrize("name", SEEDS)
def test_attacks_are_not_framed_differently(name: str) -> None:
    check(SEEDS[name])


@pytest.mark.parametrize(("reason", "peers", "data", "why"), STRICTER)
def test_where_we_are_stricter(reason: str, peers: str, data: bytes, why: str) -> None:
    ours = read_ours(data)
    assert (ours.end, ours.reason) == ("refused", reason)
    for peer in peers.split():
        assert reads_on(ours, PEERS[peer](data)), peer


@pytest.mark.parametrize(("peer", "words", "data", "why"), LOOSER)
def test_where_we_are_looser(peer: str, words: str, data: bytes, why: str) -> None:
    theirs = PEERS[peer](data)
    assert theirs.end == "refused" and words in theirs.reason
    assert read_ours(data).end != "refused"


def test_upgrade_is_the_one_other_framing() -> None:
    ours, theirs = read_ours(UPGRADE), read_llhttp(UPGRADE)
    assert theirs.end == "upgrade" and len(theirs.messages) == 1
    assert [message.body for message in ours.messages] == [b"hi", b""]
    assert read_h11(UPGRADE).messages == ours.messages


def test_mutations_are_not_framed_differently() -> None:
    generator = random.Random(20240601)
    seeds = [*SEEDS.values(), *list(VALID.values()) * 8]
    accepted = 0
    for _ in range(MUTATION_COUNT):
        data = mutate(generator, seeds)
        accepted += bool(read_ours(data).messages)
        check(data)
    assert accepted > MUTATION_COUNT // 20  # Else the mutations say little.


def test_the_comparison_notices_a_difference() -> None:
    ours = read_ours(VALID["pipelined"])
    for change in ({"target": b"/x"}, {"body": b"ab"}, {"headers": ()}, {"minor": 0}):
        messages = (dataclasses.replace(ours.messages[0], **change), *ours.messages[1:])
        assert difference(ours, Reading(messages, "more")) is not None
    assert difference(ours, Reading(ours.messages[:2], "more")) is not None
    more = Reading((*ours.messages, ours.messages[0]), "more")
    assert difference(ours, more) is not None
    assert difference(read_ours(VALID["post-partial"]), read_ours(VALID["post"])) is not None
