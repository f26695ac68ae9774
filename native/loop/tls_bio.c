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

/* Most answers are short, and many are under way at a time: more than malloc() keeps at hand. */
#define LITTLE_BYTES 1024u
#define SPARE_MAX 256u

union spare {
    union spare *next;
    uint8_t bytes[LITTLE_BYTES];
};

static _Thread_local union spare *spares;
static _Thread_local unsigned spare_count;

static uint8_t *take_spare(void)
{
    union spare *spare = spares;
    if (spare == NULL)
        return malloc(sizeof *spare);
    spares = spare->next;
    spare_count--;
    return spare->bytes;
}

static void give_spare(uint8_t *bytes)
{
    union spare *spare = (union spare *)bytes;
    if (spare_count == SPARE_MAX) {
        free(spare);
        return;
    }
    spare->next = spares;
    spares = spare;
    spare_count++;
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
        const bool is_little = piece->bytes == NULL && capacity <= LITTLE_BYTES;
        capacity = is_little ? LITTLE_BYTES : capacity;
        uint8_t *grown = is_little ? take_spare() : realloc(piece->bytes, capacity);
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
    if (piece->capacity == LITTLE_BYTES)
        give_spare(piece->bytes);
    else
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

/* ---- the records of 1.3 ---- */

static struct tls_bio *bio_of(const SSL *ssl)
{
    BIO *bio = SSL_get_rbio(ssl);
    return bio != NULL ? BIO_get_data(bio) : NULL;
}

/* A line of OpenSSL's log of keys: a name, the session, a secret. */
static void hear_secret(const SSL *ssl, const char *line)
{
    static const char client[] = "CLIENT_TRAFFIC_SECRET_0 ", server[] = "SERVER_TRAFFIC_SECRET_0 ";
    struct tls_bio *ends = bio_of(ssl);
    const bool by_client = strncmp(line, client, sizeof client - 1) == 0;
    if (ends == NULL || (!by_client && strncmp(line, server, sizeof server - 1) != 0))
        return;
    record_secret(by_client == SSL_is_server(ssl) ? &ends->heard : &ends->said,
                  strrchr(line, ' ') + 1);
}

/* Behind its last word of a handshake an end has its other keys, and may have used them: a ticket
 * is such a record. */
static void count_record(int writing, int version, int kind, const void *bytes, size_t len,
                         SSL *ssl, void *owner)
{
    struct tls_bio *ends = bio_of(ssl);
    if (!writing || ends == NULL)
        return;
    if (kind == SSL3_RT_HEADER)
        ends->said.number++;
    else if (kind == SSL3_RT_HANDSHAKE && len > 0 && *(const uint8_t *)bytes == SSL3_MT_FINISHED)
        ends->said.number = 0;
}

void tls_bio_listen(SSL_CTX *context)
{
    SSL_CTX_set_keylog_callback(context, hear_secret);
    SSL_CTX_set_msg_callback(context, count_record);
}

/* Whatever is sealed from now on is ours: two who count the same records by themselves would give a
 * number twice. */
static bool can_seal(SSL *ssl, struct tls_bio *ends)
{
    return ends->said.cipher != NULL || record_begin(&ends->said, ssl, true);
}

bool tls_bio_take_over(SSL *ssl, struct tls_bio *ends)
{
    /* OpenSSL asks for a record at a time, so nothing is left in it: it would be lost. */
    return ends->heard.secret_len > 0 && ends->said.secret_len > 0 && !SSL_has_pending(ssl) &&
           record_begin(&ends->heard, ssl, false) && can_seal(ssl, ends);
}

void tls_bio_end(struct tls_bio *ends)
{
    record_end(&ends->heard);
    record_end(&ends->said);
    piece_drop(ends->counted, &ends->next);
}

bool tls_bio_say(struct tls_bio *ends, enum record_kind kind, const uint8_t *bytes, size_t len)
{
    struct piece *piece = &ends->next;
    if (!piece_add(ends->counted, piece, NULL, len + RECORD_ADDED_BYTES,
                   PIECE_BYTES(sealed_at_once(ends))) ||
        !record_seal(&ends->said, kind, bytes, len, piece->bytes + piece->len))
        return false;
    piece->len += (uint32_t)(len + RECORD_ADDED_BYTES);
    return true;
}

bool tls_bio_renew(struct tls_bio *ends)
{
    static const uint8_t update[] = {SSL3_MT_KEY_UPDATE, 0, 0, 1, SSL_KEY_UPDATE_NOT_REQUESTED};
    return tls_bio_say(ends, RECORD_HANDSHAKE, update, sizeof update) &&
           record_renew(&ends->said);
}

static bool seal_records(struct tls_bio *ends, const uint8_t *bytes, size_t len)
{
    for (size_t at = 0, taken; at < len; at += taken) {
        taken = len - at < RECORD_BYTES ? len - at : RECORD_BYTES;
        if (!tls_bio_say(ends, RECORD_DATA, bytes + at, taken))
            return false;
    }
    return true;
}

bool tls_bio_seal(SSL *ssl, struct tls_bio *ends, const void *bytes, size_t len,
                  uint32_t *records_left)
{
    const uint32_t records = (uint32_t)(len / RECORD_BYTES + 1);
    assert(len > 0 && len <= sealed_at_once(ends));
    const bool ours = ends->said.secret_len > 0; /* 1.2 has no such secrets */
    if (ours && !can_seal(ssl, ends))
        return false;
    if (*records_left < records) { /* 1.2 has no such thing, and goes on */
        if (ours && !tls_bio_renew(ends))
            return false;
        *records_left = KEY_RECORDS_MAX;
    }
    *records_left -= records;
    const size_t room = len + (records + 1) * RECORD_OVERHEAD;
    if (!piece_add(ends->counted, &ends->next, NULL, room, PIECE_BYTES(sealed_at_once(ends))))
        return false;
    if (ours)
        return seal_records(ends, bytes, len);
    ERR_clear_error(); /* not for each record of ours: it clears 16 places */
    const int sealed = SSL_write(ssl, bytes, (int)len);
    assert(sealed <= 0 || (size_t)sealed == len);
    return sealed > 0;
}
