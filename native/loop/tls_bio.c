#include "loop/tls_bio.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "loop/conn.h"

static void count(struct conn *conn, int64_t more)
{
    if (conn == NULL)
        return;
    conn->wire_bytes += (size_t)more;
    if (conn->kept != NULL)
        *conn->kept += (uint64_t)more;
}

bool piece_add(struct conn *counted, struct piece *piece, const uint8_t *bytes, size_t len,
               size_t most)
{
    assert(piece->len <= most);
    if (len > most - piece->len)
        return false;
    if (piece->len + len > piece->capacity) {
        size_t capacity = piece->len + len > 2 * piece->capacity ? piece->len + len
                                                                 : 2 * piece->capacity;
        capacity = capacity < most ? capacity : most;
        uint8_t *grown = realloc(piece->bytes, capacity);
        if (grown == NULL)
            return false;
        count(counted, (int64_t)(capacity - piece->capacity));
        piece->bytes = grown;
        piece->capacity = (uint32_t)capacity;
    }
    if (len > 0 && bytes != NULL) {
        memcpy(piece->bytes + piece->len, bytes, len);
        piece->len += (uint32_t)len;
    }
    return true;
}

void piece_drop(struct conn *counted, struct piece *piece)
{
    count(counted, -(int64_t)piece->capacity);
    free(piece->bytes);
    *piece = (struct piece){0};
}

/* ---- the BIO ---- */

static int bio_read(BIO *bio, char *out, int capacity)
{
    struct tls_bio *ends = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (ends->in_len == 0 || capacity <= 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    const size_t len = ends->in_len < (size_t)capacity ? ends->in_len : (size_t)capacity;
    memcpy(out, ends->in, len);
    ends->in += len;
    ends->in_len -= len;
    return (int)len;
}

static int bio_write(BIO *bio, const char *bytes, int len)
{
    struct tls_bio *ends = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (len < 0 || !piece_add(ends->counted, &ends->next, (const uint8_t *)bytes, (size_t)len,
                              PIECE_BYTES(sealed_at_once(ends))))
        return -1;
    return len;
}

static long bio_control(BIO *bio, int what, long number, void *pointer)
{
    return what == BIO_CTRL_FLUSH;
}

static int bio_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *bio_method(void)
{
    static BIO_METHOD *method;
    if (method != NULL)
        return method;
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "barco");
    if (method != NULL) {
        BIO_meth_set_read(method, bio_read);
        BIO_meth_set_write(method, bio_write);
        BIO_meth_set_ctrl(method, bio_control);
        BIO_meth_set_create(method, bio_create);
    }
    return method;
}

bool tls_bio_attach(SSL *ssl, struct tls_bio *ends)
{
    BIO *bio = SSL_get_rbio(ssl);
    if (bio == NULL) {
        if ((bio = BIO_new(bio_method())) == NULL)
            return false;
        SSL_set_bio(ssl, bio, bio); /* which is freed with it */
    }
    BIO_set_data(bio, ends);
    return true;
}

bool tls_bio_seal(SSL *ssl, struct tls_bio *ends, const void *bytes, size_t len,
                  uint32_t *records_left)
{
    const uint32_t records = (uint32_t)(len / RECORD_BYTES + 1);
    assert(len > 0 && len <= sealed_at_once(ends));
    ERR_clear_error();
    if (*records_left < records) { /* 1.2 has no such thing, and goes on */
        if (SSL_version(ssl) == TLS1_3_VERSION &&
            SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
            return false;
        *records_left = KEY_RECORDS_MAX;
    }
    *records_left -= records;
    const size_t room = len + (records + 1) * RECORD_OVERHEAD;
    if (!piece_add(ends->counted, &ends->next, NULL, room, PIECE_BYTES(sealed_at_once(ends))))
        return false;
    const int sealed = SSL_write(ssl, bytes, (int)len);
    assert(sealed <= 0 || (size_t)sealed == len);
    return sealed > 0;
}
