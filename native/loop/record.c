#include "loop/record.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <string.h>

#include "loop/cipher.h"

#define LABEL_BYTES_MAX 12u

/* ---- keys ---- */

/* HKDF-Expand-Label without a context, of no more than one round. */
static bool expand(const struct record_keys *keys, const char *label, uint8_t *out, size_t len)
{
    static const char prefix[] = "tls13 ";
    uint8_t info[2 + 1 + sizeof prefix + LABEL_BYTES_MAX + 2], round[EVP_MAX_MD_SIZE];
    const size_t prefix_len = sizeof prefix - 1, label_len = strlen(label);
    unsigned round_len = 0;
    size_t at = 0;
    assert(label_len <= LABEL_BYTES_MAX && len <= keys->secret_len);
    info[at++] = 0;
    info[at++] = (uint8_t)len;
    info[at++] = (uint8_t)(prefix_len + label_len);
    memcpy(info + at, prefix, prefix_len);
    memcpy(info + at + prefix_len, label, label_len);
    at += prefix_len + label_len;
    info[at++] = 0; /* bytes of context */
    info[at++] = 1; /* the first round */
    const bool good = HMAC(keys->digest, keys->secret, keys->secret_len, info, at, round,
                           &round_len) != NULL &&
                      len <= round_len;
    if (good)
        memcpy(out, round, len);
    OPENSSL_cleanse(round, sizeof round);
    return good;
}

static bool use_secret(struct record_keys *keys)
{
    uint8_t key[EVP_MAX_KEY_LENGTH];
    const bool good = expand(keys, "key", key, cipher_key_bytes(keys->cipher)) &&
                      expand(keys, "iv", keys->iv, sizeof keys->iv) &&
                      cipher_use(keys->cipher, key);
    OPENSSL_cleanse(key, sizeof key);
    return good;
}

bool record_secret(struct record_keys *keys, const char *digits)
{
    const size_t len = strlen(digits) / 2;
    if (len == 0 || len > sizeof keys->secret)
        return false;
    for (size_t i = 0; i < len; i++) {
        const int high = OPENSSL_hexchar2int((unsigned char)digits[2 * i]);
        const int low = OPENSSL_hexchar2int((unsigned char)digits[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        keys->secret[i] = (uint8_t)(high << 4 | low);
    }
    keys->secret_len = (uint8_t)len;
    return true;
}

bool record_begin(struct record_keys *keys, const SSL *ssl, bool seals)
{
    const SSL_CIPHER *suite = SSL_get_current_cipher(ssl);
    assert(keys->secret_len > 0 && keys->cipher == NULL && suite != NULL);
    keys->digest = SSL_CIPHER_get_handshake_digest(suite);
    assert(EVP_MD_get_size(keys->digest) == keys->secret_len);
    keys->cipher = cipher_new(SSL_CIPHER_get_cipher_nid(suite), seals);
    if (keys->cipher != NULL && use_secret(keys))
        return true;
    cipher_free(keys->cipher);
    keys->cipher = NULL;
    return false;
}

bool record_renew(struct record_keys *keys)
{
    assert(keys->cipher != NULL);
    keys->number = 0;
    return expand(keys, "traffic upd", keys->secret, keys->secret_len) && use_secret(keys);
}

bool record_show(const struct record_keys *keys, struct record_key *out)
{
    assert(keys->cipher != NULL && keys->secret_len > 0);
    const int nid = cipher_nid(keys->cipher);
    out->cipher = nid == NID_aes_128_gcm   ? RECORD_AES_128
                  : nid == NID_aes_256_gcm ? RECORD_AES_256
                                           : RECORD_CHACHA;
    out->len = (uint8_t)cipher_key_bytes(keys->cipher);
    out->number = keys->number;
    memcpy(out->iv, keys->iv, sizeof out->iv);
    assert(out->len <= sizeof out->key);
    return expand(keys, "key", out->key, out->len);
}

void record_end(struct record_keys *keys)
{
    cipher_free(keys->cipher);
    OPENSSL_cleanse(keys, sizeof *keys);
}

/* ---- records ---- */

/* What is not sealed of a record, but is part of what its tag vouches for. */
static void write_head(uint8_t head[RECORD_HEAD_BYTES], size_t sealed_len)
{
    head[0] = RECORD_DATA;
    head[1] = head[2] = 3;
    head[3] = (uint8_t)(sealed_len >> 8);
    head[4] = (uint8_t)sealed_len;
}

static bool begin_record(struct record_keys *keys, const uint8_t head[RECORD_HEAD_BYTES])
{
    uint8_t nonce[RECORD_IV_BYTES];
    memcpy(nonce, keys->iv, sizeof nonce);
    for (unsigned i = 0; i < 8; i++)
        nonce[sizeof nonce - 1 - i] ^= (uint8_t)(keys->number >> 8 * i);
    keys->number++;
    return cipher_begin(keys->cipher, nonce, head, RECORD_HEAD_BYTES);
}

size_t record_len(const uint8_t *head)
{
    const size_t len = RECORD_HEAD_BYTES + ((size_t)head[3] << 8 | head[4]);
    return head[0] == RECORD_DATA && len <= RECORD_WIRE_MAX ? len : 0;
}

int record_open(struct record_keys *keys, const uint8_t *record, size_t len, uint8_t *out,
                size_t *said)
{
    const uint8_t *sealed = record + RECORD_HEAD_BYTES;
    size_t inner_len = record_room(len);
    assert(len >= RECORD_HEAD_BYTES && len == record_len(record));
    if (inner_len == 0 || !begin_record(keys, record) ||
        !cipher_update(keys->cipher, sealed, inner_len, out) ||
        !cipher_open(keys->cipher, sealed + inner_len))
        return -SSL_AD_BAD_RECORD_MAC;
    while (inner_len > 0 && out[inner_len - 1] == 0) /* what it was filled up with */
        inner_len--;
    if (inner_len == 0)
        return -SSL_AD_UNEXPECTED_MESSAGE;
    if (inner_len - 1 > RECORD_BYTES)
        return -SSL_AD_RECORD_OVERFLOW;
    *said = inner_len - 1;
    return out[inner_len - 1];
}

bool record_seal(struct record_keys *keys, enum record_kind kind, const uint8_t *bytes, size_t len,
                 uint8_t *out)
{
    const uint8_t behind = (uint8_t)kind;
    uint8_t *sealed = out + RECORD_HEAD_BYTES;
    assert(len > 0 && len <= RECORD_BYTES);
    write_head(out, len + 1 + RECORD_TAG_BYTES);
    return begin_record(keys, out) && cipher_update(keys->cipher, bytes, len, sealed) &&
           cipher_update(keys->cipher, &behind, 1, sealed + len) &&
           cipher_seal(keys->cipher, sealed + len + 1);
}
