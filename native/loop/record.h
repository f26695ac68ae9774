/* record: the records of TLS 1.3 behind a handshake (RFC 8446, 5 and 7), opened and sealed where
 * the bytes lie, or where they go. Handshakes, keys and ciphers are OpenSSL's; only its way of
 * carrying records is not: that copies each byte twice, and takes room for a record of each
 * connection in between. */
#ifndef BARCO_RECORD_H
#define BARCO_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_BYTES 16384u  /* of what is said, at most */
#define RECORD_HEAD_BYTES 5u /* kind, version, length */
#define RECORD_TAG_BYTES 16u
#define RECORD_ADDED_BYTES (RECORD_HEAD_BYTES + 1 + RECORD_TAG_BYTES)
#define RECORD_WIRE_MAX (RECORD_HEAD_BYTES + RECORD_BYTES + 256u)
#define RECORD_SECRET_BYTES_MAX 48u
#define RECORD_KEY_BYTES_MAX 32u
#define RECORD_IV_BYTES 12u

enum record_kind { RECORD_ALERT = 21, RECORD_HANDSHAKE = 22, RECORD_DATA = 23 };

struct cipher;
struct evp_md_st;
struct ssl_st;

/* Of one direction. While the handshake lasts there is a secret, at most. */
struct record_keys {
    struct cipher *cipher;
    const struct evp_md_st *digest;
    uint64_t number; /* of the next record */
    uint8_t secret_len, secret[RECORD_SECRET_BYTES_MAX], iv[RECORD_IV_BYTES];
};

/* The secret of the handshake, as a line of its log of keys has it in hexadecimal digits; false: it
 * is none. */
bool record_secret(struct record_keys *keys, const char *digits);
/* From here on: the cipher that the handshake has chosen. `number` records went before. False:
 * there is no memory. */
bool record_begin(struct record_keys *keys, const struct ssl_st *ssl, bool seals);
/* Other keys follow (7.2). */
bool record_renew(struct record_keys *keys);
void record_end(struct record_keys *keys); /* nothing of them is left in memory */

/* What another needs to seal what follows (tls_kernel.h). Whoever asked for it clears it. */
struct record_key {
    enum record_cipher { RECORD_AES_128, RECORD_AES_256, RECORD_CHACHA } cipher;
    uint8_t len, key[RECORD_KEY_BYTES_MAX], iv[RECORD_IV_BYTES];
    uint64_t number;
};
bool record_show(const struct record_keys *keys, struct record_key *out);

/* How long the record is that begins so, with its head of RECORD_HEAD_BYTES; 0: it is none. */
size_t record_len(const uint8_t *head);
/* What it needs to be opened: what is said, its kind, what it is filled up with. */
static inline size_t record_room(size_t len)
{
    return len > RECORD_HEAD_BYTES + RECORD_TAG_BYTES ? len - RECORD_HEAD_BYTES - RECORD_TAG_BYTES
                                                      : 0;
}

/* Opens it into `out`, of record_room() bytes, or behind its head where it lies: its kind, and what
 * is said; or the alert that ends the connection, less than 0. */
int record_open(struct record_keys *keys, const uint8_t *record, size_t len, uint8_t *out,
                size_t *said);
/* Writes len + RECORD_ADDED_BYTES bytes. */
bool record_seal(struct record_keys *keys, enum record_kind kind, const uint8_t *bytes, size_t len,
                 uint8_t *out);

#endif
