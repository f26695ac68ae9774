/* tls_bio: what OpenSSL takes for a socket. It reads what has come from where it lies, for as long
 * as whoever calls it leaves it there, and appends what it says to a piece that is sent then. After
 * a handshake of TLS 1.3 its records are ours (record.h): OpenSSL is not asked any more. */
#ifndef BARCO_TLS_BIO_H
#define BARCO_TLS_BIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/record.h"

#define RECORD_OVERHEAD 64u       /* more than any cipher adds */
#define SEALED_AT_ONCE 65536u     /* what a piece holds of what is said */
#define SEALED_BETWEEN 262144u    /* the same, to a broker: they are few, and each turn costs */
#define OWN_BYTES_MAX (64u << 10) /* of what OpenSSL says itself: a chain, or what nobody reads */
#define PIECE_BYTES(at_once)                                                                       \
    ((at_once) + ((at_once) / RECORD_BYTES + 1) * RECORD_OVERHEAD + OWN_BYTES_MAX)
#define PIECE_BYTES_MAX PIECE_BYTES(SEALED_AT_ONCE)
#define KEY_RECORDS_MAX (1u << 22) /* RFC 8446, 5.5: fewer than 24 million of AES-GCM */

struct conn;
struct ssl_ctx_st;

struct piece {
    uint8_t *bytes;
    uint32_t len, capacity, sent;
};

struct tls_bio {
    struct conn *counted; /* whose memory it is; NULL: of none that counts it */
    uint8_t *in;          /* what has come and was not read yet */
    size_t in_len;
    struct piece next; /* what was said */
    bool between;      /* brokers, by the loop: nobody's client */
    struct record_keys heard, said;
};

static inline size_t sealed_at_once(const struct tls_bio *bio)
{
    return bio->between ? SEALED_BETWEEN : SEALED_AT_ONCE;
}

/* len bytes, or room for so many; false: there is no memory, or they would be over `most`. */
bool piece_add(struct conn *counted, struct piece *piece, const uint8_t *bytes, size_t len,
               size_t most);
void piece_drop(struct conn *counted, struct piece *piece);
/* Of sessions that it makes, what a handshake of 1.3 agrees on is kept in their tls_bio. */
void tls_bio_listen(struct ssl_ctx_st *context);
/* The session reads and writes there, from now on. False: there is no memory. */
bool tls_bio_attach(struct ssl_st *ssl, struct tls_bio *bio);
/* After a handshake of 1.3: the session is not needed any more. False: nothing can go on. */
bool tls_bio_take_over(struct ssl_st *ssl, struct tls_bio *bio);
void tls_bio_end(struct tls_bio *bio); /* keys, and what was said */
/* Seals it, all of it, at most sealed_at_once() bytes; false: the session can not go on, and
 * OpenSSL's errors say why. *records_left: until there are other keys. */
bool tls_bio_seal(struct ssl_st *ssl, struct tls_bio *bio, const void *bytes, size_t len,
                  uint32_t *records_left);
/* A record of ours that is no data: an alert, or that other keys follow, which it then has. */
bool tls_bio_say(struct tls_bio *bio, enum record_kind kind, const uint8_t *bytes, size_t len);
bool tls_bio_renew(struct tls_bio *bio);

#endif
