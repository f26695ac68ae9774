"""HTTP/1.1 as the client reads it: whatever the pieces, the same answers."""

import pytest

from barco.client.wire import http1
from barco.client.wire.http1 import Answers, HttpError, Request, split_endpoint

TWO = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nBarco-Next-Cursor: 1-2\r\n\r\nabc"
    b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    b'5\r\n{"det\r\n9\r\nail":"x"}\r\n0\r\n\r\n'
)


@pytest.mark.parametrize("piece", [1, 2, 7, 64, len(TWO)])
def test_answers_do_not_depend_on_the_pieces(piece):
    answers = Answers()
    found = []
    for at in range(0, len(TWO), piece):
        assert not answers.closing
        found += answers.feed(TWO[at : at + piece])
    first, second = found
    assert (first.status, first.body, first.headers["barco-next-cursor"]) == (200, b"abc", "1-2")
    assert (second.status, second.problem, second.words) == (503, {"detail": "x"}, "503: x")
    assert answers.closing


def test_what_is_not_http_is_refused():
    with pytest.raises(HttpError, match=r"does not speak HTTP/1\.1"):
        Answers().feed(b"SSH-2.0-OpenSSH_9.2\r\n")


def test_what_is_whole_counts_whatever_comes_behind_it():
    answers = Answers()
    (found,) = answers.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcrubbish\r\n\r\n")
    assert found.body == b"abc" and answers.closing


def test_an_answer_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(http1, "RESPONSE_BYTES_MAX", 1000)
    answers = Answers()
    answers.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n" + b"x" * 1000)
    with pytest.raises(HttpError, match="over 1000 bytes"):
        answers.feed(b"x")


def test_requests_tell_the_length_of_what_they_carry():
    assert Request("GET", "/a", (("Accept", "b"),)).head("h:1") == (
        b"GET /a HTTP/1.1\r\nHost: h:1\r\nAccept: b\r\n\r\n"
    )
    assert b"\r\nContent-Length: 0\r\n" in Request("PUT", "/a").head("h:1")
    assert b"\r\nContent-Length: 2\r\n" in Request("DELETE", "/a", body=b"xy").head("h:1")


def test_endpoints():
    assert split_endpoint("[::1]:9250") == ("::1", 9250)
    for wrong in ("localhost", "localhost:", ":1", "a:0", "a:65536", "a:1_0"):
        with pytest.raises(ValueError, match="is not an endpoint"):
            split_endpoint(wrong)
