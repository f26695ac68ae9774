#include "loop/seal.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define PIECE_KEPT_BYTES 16384u /* of who mostly says little */

/* ---- what all have in common ---- */

/* The other end offers the name of this connection, or has been greeted otherwise. */
static int choose_name(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *offered, unsigned len, void *owner)
{
    const struct seal *seal = SSL_get_app_data(ssl);
    if (len != (unsigned)seal->name_len + 1 || offered[0] != seal->name_len ||
        memcmp(offered + 1, seal->name, seal->name_len) != 0)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = seal->name;
    *out_len = seal->name_len;
    return SSL_TLSEXT_ERR_OK;
}

SSL_CTX *seal_context(const struct tls_options *options, char why[TLS_WHY_BYTES])
{
    SSL_CTX *context = tls_context_between(options, why);
    if (context != NULL)
        SSL_CTX_set_alpn_select_cb(context, choose_name, NULL);
    return context;
}

/* ---- life ---- */

struct seal *seal_new(SSL_CTX *context, bool client, const uint8_t *name, size_t len)
{
    uint8_t offer[SEAL_NAME_BYTES_MAX + 1];
    assert(len > 0 && len <= SEAL_NAME_BYTES_MAX);
    struct seal *seal = calloc(1, sizeof *seal);
    if (seal == NULL)
        return NULL;
    seal->holders = 1;
    seal->records_left = KEY_RECORDS_MAX;
    seal->name_len = offer[0] = (uint8_t)len;
    memcpy(seal->name, name, len);
    memcpy(offer + 1, name, len);
    seal->ssl = SSL_new(context);
    if (seal->ssl == NULL || !tls_bio_attach(seal->ssl, &seal->bio) ||
        SSL_set_app_data(seal->ssl, seal) != 1 ||
        (client && SSL_set_alpn_protos(seal->ssl, offer, (unsigned)len + 1) != 0)) {
        seal_drop(seal);
        return NULL;
    }
    if (client)
        SSL_set_connect_state(seal->ssl);
    else
        SSL_set_accept_state(seal->ssl);
    return seal;
}

struct seal *seal_keep(struct seal *seal)
{
    if (seal != NULL)
        seal->holders++;
    return seal;
}

void seal_drop(struct seal *seal)
{
    if (seal == NULL)
        return;
    assert(seal->holders > 0);
    if (--seal->holders > 0)
        return;
    SSL_free(seal->ssl);
    tls_bio_end(&seal->bio);
    free(seal);
}

void seal_give(struct seal *seal, struct tls_bio *bio)
{
    assert(seal->established && seal->ssl != NULL && seal->bio.in_len == 0);
    assert(seal->bio.next.len == 0); /* the handshake was sent */
    SSL_free(seal->ssl);
    seal->ssl = NULL;
    bio->heard = seal->bio.heard;
    bio->said = seal->bio.said;
    OPENSSL_cleanse(&seal->bio.heard, sizeof seal->bio.heard);
    OPENSSL_cleanse(&seal->bio.said, sizeof seal->bio.said);
    tls_bio_end(&seal->bio);
}

/* ---- the handshake ---- */

static bool fail(struct seal *seal, const char *what, char why[TLS_WHY_BYTES])
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    const long verdict = SSL_get_verify_result(seal->ssl);
    if (verdict != X509_V_OK)
        reason = X509_verify_cert_error_string(verdict);
    snprintf(why, TLS_WHY_BYTES, "%s%s%s", what, reason != NULL ? ": " : "",
             reason != NULL ? reason : "");
    ERR_clear_error();
    seal->failed = true;
    return false;
}

static bool has_its_name(const struct seal *seal)
{
    const unsigned char *name = NULL;
    unsigned len = 0;
    SSL_get0_alpn_selected(seal->ssl, &name, &len);
    return len == seal->name_len && memcmp(name, seal->name, len) == 0;
}

bool seal_shake(struct seal *seal, const uint8_t *record, size_t len, char why[TLS_WHY_BYTES])
{
    assert(!seal->established && !seal->failed && seal->ssl != NULL);
    seal->bio.in = (uint8_t *)record; /* of a handshake it is only read */
    seal->bio.in_len = len;
    ERR_clear_error();
    const int done = SSL_do_handshake(seal->ssl);
    const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(seal->ssl, done);
    const bool all_read = seal->bio.in_len == 0;
    seal->bio.in = NULL;
    seal->bio.in_len = 0;
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ)
        return fail(seal, "the other end and this one do not come to terms on TLS", why);
    if (!all_read)
        return fail(seal, "more came than one record", why);
    if (error == SSL_ERROR_WANT_READ)
        return true;
    if (!has_its_name(seal))
        return fail(seal, "the other end was greeted otherwise", why);
    seal->established = true;
    return true;
}

const uint8_t *seal_unsent(const struct seal *seal, size_t *len)
{
    const struct piece *piece = &seal->bio.next;
    assert(piece->sent <= piece->len);
    *len = piece->len - piece->sent;
    return *len > 0 ? piece->bytes + piece->sent : NULL;
}

void seal_sent(struct seal *seal, size_t len)
{
    struct piece *piece = &seal->bio.next;
    assert(len <= piece->len - piece->sent);
    piece->sent += (uint32_t)len;
    if (piece->sent < piece->len)
        return;
    if (piece->capacity > PIECE_KEPT_BYTES)
        piece_drop(NULL, piece);
    else
        piece->len = piece->sent = 0;
}

/* Length of the URI if it is one of ours, SIZE_MAX where it can be none. */
static size_t own_uri(const GENERAL_NAME *name, char out[SEAL_IDENTITY_BYTES_MAX])
{
    const size_t scheme = sizeof SEAL_SCHEME - 1;
    if (name->type != GEN_URI)
        return 0;
    const uint8_t *text = ASN1_STRING_get0_data(name->d.uniformResourceIdentifier);
    const int len = ASN1_STRING_length(name->d.uniformResourceIdentifier);
    if (len < (int)scheme || memcmp(text, SEAL_SCHEME, scheme) != 0)
        return 0;
    if (len > (int)SEAL_IDENTITY_BYTES_MAX)
        return SIZE_MAX;
    for (int i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return SIZE_MAX;
    memcpy(out, text, (size_t)len);
    return (size_t)len;
}

size_t seal_identity(const struct seal *seal, char out[SEAL_IDENTITY_BYTES_MAX])
{
    assert(seal->established && seal->ssl != NULL);
    const X509 *shown = SSL_get0_peer_certificate(seal->ssl);
    GENERAL_NAMES *names =
        shown != NULL ? X509_get_ext_d2i(shown, NID_subject_alt_name, NULL, NULL) : NULL;
    size_t found = 0, ours = 0;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const size_t len = own_uri(sk_GENERAL_NAME_value(names, i), out);
        if (len > 0) {
            ours++;
            found = len;
        }
    }
    GENERAL_NAMES_free(names);
    return ours == 1 && found != SIZE_MAX ? found : 0;
}

/* ---- writing past the loop ---- */

int seal_flush(struct seal *seal, int fd)
{
    size_t len;
    const uint8_t *bytes = seal_unsent(seal, &len);
    if (len == 0)
        return 1;
    const ssize_t sent = send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    seal_sent(seal, (size_t)sent);
    return (size_t)sent == len;
}

/* The next bytes of the message: where they lie, or put together where the first piece is short. */
static const uint8_t *next_bytes(const struct msghdr *message, size_t skip, uint8_t *together,
                                 size_t *len)
{
    size_t have = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const struct iovec *part = &message->msg_iov[i];
        if (skip >= part->iov_len) {
            skip -= part->iov_len;
            continue;
        }
        const uint8_t *bytes = (const uint8_t *)part->iov_base + skip;
        const size_t left = part->iov_len - skip;
        skip = 0;
        if (have == 0 && (left >= RECORD_BYTES || i + 1 == message->msg_iovlen)) {
            *len = left < SEALED_AT_ONCE ? left : SEALED_AT_ONCE;
            return bytes;
        }
        const size_t taken = left < RECORD_BYTES - have ? left : RECORD_BYTES - have;
        memcpy(together + have, bytes, taken);
        have += taken;
        if (have == RECORD_BYTES)
            break;
    }
    *len = have;
    return together;
}

/* As much of the message as one call to the kernel sends: SEALED_AT_ONCE bytes of it, or the rest.
 * A group and its head are two pieces of memory, and were two calls. */
static bool seal_piece(struct seal *seal, const struct msghdr *message, size_t skip, size_t *sealed)
{
    uint8_t together[RECORD_BYTES];
    size_t len, left = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        left += message->msg_iov[i].iov_len;
    assert(skip <= left);
    left = left - skip < SEALED_AT_ONCE ? left - skip : SEALED_AT_ONCE;
    const size_t room = left + (left / RECORD_BYTES + 3) * RECORD_OVERHEAD;
    if (left > 0 && !piece_add(NULL, &seal->bio.next, NULL, room, PIECE_BYTES_MAX))
        return false;
    for (*sealed = 0; *sealed < left;) {
        const uint8_t *bytes = next_bytes(message, skip + *sealed, together, &len);
        len = len < left - *sealed ? len : left - *sealed;
        assert(len > 0);
        if (!tls_bio_seal(seal->ssl, &seal->bio, bytes, len, &seal->records_left))
            return false;
        *sealed += len;
    }
    return true;
}

ssize_t seal_or_send(struct seal *seal, int fd, const struct msghdr *message)
{
    if (seal == NULL) {
        const ssize_t sent = sendmsg(fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
        return sent >= 0 ? sent : errno == EAGAIN || errno == EINTR ? 0 : -errno;
    }
    if (seal->ssl == NULL || !seal->established || seal->failed)
        return -ENOTCONN;
    size_t taken = 0, more;
    for (int flushed; (flushed = seal_flush(seal, fd)) != 0; taken += more) {
        if (flushed < 0)
            return flushed;
        if (!seal_piece(seal, message, taken, &more)) {
            ERR_clear_error();
            seal->failed = true;
            return -EPROTO;
        }
        if (more == 0)
            break;
    }
    return (ssize_t)taken;
}
