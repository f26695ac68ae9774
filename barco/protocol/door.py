"""The door between brokers: proof that the other end knows the cluster's secret.

Both ends of a connection say who they are, each with a nonce that was never used before. Then each
proves that it knows the key, over both greetings as they travelled: a recorded greeting or proof is
worth nothing, none can be reflected, and what was said in a greeting can not be changed on the way.

    caller -> answerer   greeting, nonce
    answerer -> caller   greeting, nonce, proof
    caller -> answerer   proof

Nothing else that comes in is looked at before the proof. What follows is neither encrypted nor
signed: the network between brokers is still one of your own.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from barco.errors import ProtocolError

NONCE_BYTES = PROOF_BYTES = 32

NONCE, PROOF = "nonce", "proof"
"""Their names in frames."""

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


def without_nonce(greeting: Mapping[str, Any]) -> dict[str, Any]:
    """The rest of a greeting, which has to have one; ProtocolError if it has not."""
    nonce = greeting.get(NONCE)
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
        raise ProtocolError("a greeting comes without a nonce")
    return {name: value for name, value in greeting.items() if name != NONCE}


def proof_in(message: Mapping[str, Any]) -> bytes:
    """The proof in a frame; ProtocolError where there is none, or a refusal came instead."""
    refusal = message.get("refused")
    if isinstance(refusal, str):
        raise ProtocolError(f"refused: {refusal[:500]}")
    given = message.get(PROOF)
    if len(message) != 1 or not isinstance(given, bytes) or len(given) != PROOF_BYTES:
        raise ProtocolError("a greeting is followed by something that is no proof")
    return given
