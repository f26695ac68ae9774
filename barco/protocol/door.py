"""The door between brokers: proof that the other end knows the cluster's secret.

Both ends of a connection say who they are, each with a nonce that was never used before. Then each
proves that it knows the key, over both greetings as they travelled: a recorded greeting or proof is
worth nothing, none can be reflected, and what was said in a greeting can not be changed on the way.

    caller -> answerer   greeting, nonce
    answerer -> caller   greeting, nonce, proof
    caller -> answerer   proof

Nothing else that comes in is looked at before the proof. What follows is neither encrypted nor
signed, unless both have certificates (`barco.mutual`): then they go over to TLS.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, TypeAlias

from barco.errors import ProtocolError

NONCE_BYTES = PROOF_BYTES = 32

NONCE, PROOF, TLS = "nonce", "proof", "tls"
"""Their names in frames. TLS: its end goes on with TLS after the last frame of the greeting; False:
unless the other end does not."""

Tls: TypeAlias = bool | None
"""Of this end. None: it speaks plain. False: TLS with who speaks it, while a ring goes over from
one to the other. True: nothing but TLS."""

CALLER, ANSWERER = b"caller", b"answerer"

DIFFERENT = (
    "it does not prove that it knows this cluster's secret: the file of cluster.secret_file has to"
    " be the same on all brokers (copy it, mode 0600), or the key be left out on all of them"
)
"""Why somebody is not let in, for both ends."""


def link_key(secret: bytes, cluster_uuid: str) -> bytes:
    """The key of all connections of a cluster. Without a secret it follows from the cluster alone,
    and keeps out nobody but the brokers of another one."""
    return hmac.digest(secret, b"barco cluster " + cluster_uuid.encode(), "sha256")


def proof(key: bytes, role: bytes, caller: bytes, answerer: bytes) -> bytes:
    """What the end of this role sends. `caller`, `answerer`: the bodies of both greetings."""
    said = hashlib.sha256(caller).digest() + hashlib.sha256(answerer).digest()
    return hmac.digest(key, b"barco door 1 " + role + b" " + said, "sha256")


def proves(given: object, key: bytes, role: bytes, caller: bytes, answerer: bytes) -> bool:
    """Whether this is the proof of the other end."""
    wanted = proof(key, role, caller, answerer)
    return isinstance(given, bytes) and hmac.compare_digest(given, wanted)


def name(caller: bytes, answerer: bytes) -> str:
    """What TLS that follows these greetings is called, for both ends; ASCII, 77 characters. What
    else was said than the other end has heard gives another name."""
    said = hashlib.sha256(caller).digest() + hashlib.sha256(answerer).digest()
    return f"barco door 1 {hashlib.sha256(said).hexdigest()}"


def added(nonce: bytes, *, tls: Tls) -> dict[str, Any]:
    """What a greeting has besides who it is."""
    assert len(nonce) == NONCE_BYTES
    return {NONCE: nonce} | ({} if tls is None else {TLS: tls})


def sealed(greeting: Mapping[str, Any], *, tls: Tls) -> bool:
    """Whether TLS follows: both speak it. What the greeting says of that its proof covers, so that
    nobody in between bargains it down."""
    return tls is not None and TLS in greeting


def disagreement(greeting: Mapping[str, Any], *, tls: Tls) -> str | None:
    """Why it is not gone on after a greeting; None if both ends mean the same by what follows."""
    if sealed(greeting, tls=tls) or not (tls or greeting.get(TLS)):
        return None
    wants, lacks = ("this end", "the other") if tls else ("the other end", "this one")
    return (
        f"{wants} goes on with TLS and {lacks} does not: cluster.ca, cluster.certificate and"
        " cluster.key have to be set on all brokers (barco certs makes the files), or on none; with"
        " cluster.tls_required = false on all that have them one by one"
    )


def without_nonce(greeting: Mapping[str, Any]) -> dict[str, Any]:
    """Who it is that a greeting is of, which has to have a nonce; ProtocolError if it has not."""
    nonce = greeting.get(NONCE)
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
        raise ProtocolError("a greeting comes without a nonce")
    if TLS in greeting and type(greeting[TLS]) is not bool:
        raise ProtocolError("a greeting means something else by TLS")
    return {key: value for key, value in greeting.items() if key not in (NONCE, TLS)}


def proof_in(message: Mapping[str, Any]) -> bytes:
    """The proof in a frame; ProtocolError where there is none, or a refusal came instead."""
    refusal = message.get("refused")
    if isinstance(refusal, str):
        raise ProtocolError(f"refused: {refusal[:500]}")
    given = message.get(PROOF)
    if len(message) != 1 or not isinstance(given, bytes) or len(given) != PROOF_BYTES:
        raise ProtocolError("a greeting is followed by something that is no proof")
    return given
