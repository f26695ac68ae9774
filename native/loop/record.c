#include "loop/record.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <string.h>

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
    const size_t len = (size_t)EVP_CIPHER_CTX_get_key_length(keys->cipher);
    const bool good = expand(keys, "key", key, len) &&
                      expand(keys, "iv", keys->iv, sizeof keys->iv) &&
                      EVP_CipherInit_ex(keys->cipher, NULL, NULL, key, NULL, -1) == 1;
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
    const EVP_CIPHER *cipher = EVP_get_cipherbynid(SSL_CIPHER_get_cipher_nid(suite));
    assert(keys->secret_len > 0 && keys->cipher == NULL && cipher != NULL);
    keys->digest = SSL_CIPHER_get_handshake_digest(suite);
    assert(EVP_MD_get_size(keys->digest) == keys->secret_len);
    assert(EVP_CIPHER_get_iv_length(cipher) == RECORD_IV_BYTES);
    keys->cipher = EVP_CIPHER_CTX_new();
    if (keys->cipher != NULL &&
        EVP_CipherInit_ex(keys->cipher, cipher, NULL, NULL, NULL, seals) == 1 && use_secret(keys))
        return true;
    EVP_CIPHER_CTX_free(keys->cipher);
    keys->cipher = NULL;
    return false;
}

bool record_renew(struct record_keys *keys)
{
    assert(keys->cipher != NULL);
    keys->number = 0;
    return expand(keys, "traffic upd", keys->secret, keys->secret_len) && use_secret(keys);
}

void record_end(struct record_keys *keys)
{
    EVP_CIPHER_CTX_free(keys->cipher); /* which clears it */
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
    int len;
    memcpy(nonce, keys->iv, sizeof nonce);
    for (unsigned i = 0; i < 8; i++)
        nonce[sizeof nonce - 1 - i] ^= (uint8_t)(keys->number >> 8 * i);
    keys->number++;
    return EVP_CipherInit_ex(keys->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(keys->cipher, NULL, &len, head, RECORD_HEAD_BYTES) == 1;
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
    int got = 0, end = 0;
    assert(len >= RECORD_HEAD_BYTES && len == record_len(record));
    if (inner_len == 0 || !begin_record(keys, record) ||
        EVP_CIPHER_CTX_ctrl(keys->cipher, EVP_CTRL_AEAD_SET_TAG, RECORD_TAG_BYTES,
                            (void *)(sealed + inner_len)) != 1 ||
        EVP_CipherUpdate(keys->cipher, out, &got, sealed, (int)inner_len) != 1 ||
        EVP_CipherFinal_ex(keys->cipher, out + got, &end) != 1)
        return -SSL_AD_BAD_RECORD_MAC;
    assert((size_t)(got + end) == inner_len);
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
    int got = 0, more = 0, end = 0;
    assert(len > 0 && len <= RECORD_BYTES);
    write_head(out, len + 1 + RECORD_TAG_BYTES);
    if (!begin_record(keys, out) ||
        EVP_CipherUpdate(keys->cipher, sealed, &got, bytes, (int)len) != 1 ||
        EVP_CipherUpdate(keys->cipher, sealed + got, &more, &behind, 1) != 1 ||
        EVP_CipherFinal_ex(keys->cipher, sealed + got + more, &end) != 1)
        return false;
    assert((size_t)(got + more + end) == len + 1);
    return EVP_CIPHER_CTX_ctrl(keys->cipher, EVP_CTRL_AEAD_GET_TAG, RECORD_TAG_BYTES,
                               sealed + len + 1) == 1;
}
