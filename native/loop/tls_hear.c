/* What is heard by TLS. Behind a handshake of 1.3 records are opened where the engine has them, or
 * into the body that they are of, and only one that has come in part is copied; behind one of 1.2
 * OpenSSL reads. */
#include "loop/tls_hear.h"

#include <assert.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/socket.h>

#include "loop/tls_state.h"

#define NO_DATA_MAX 32u /* records in a row that bring none: each costs more than it took to send */

/* Nothing more goes out but the alert that says why, which is there by now. */
static void fail_for(struct conn *conn, const char *reason)
{
    struct tls *tls = tls_of(conn);
    struct tls_figures *figures = figures_of(conn);
    figures->failed++;
    figures->reason = reason != NULL ? reason : "the connection could not go on";
    tls->failed = true;
    ERR_clear_error();
    conn_close(conn);
}

void tls_fail(struct conn *conn)
{
    fail_for(conn, ERR_reason_error_string(ERR_peek_error()));
}

/* The other end has said that it says nothing more: the socket is not read further. */
static void heard_the_end(struct conn *conn)
{
    struct net *net = conn->loop->net;
    tls_of(conn)->ended = true;
    if (conn->receiving)
        net->recv_stop(net, conn);
    loop_receive_ended(conn, 0);
}

void tls_tell(struct tls *tls, uint8_t level, uint8_t what)
{
    const uint8_t said[] = {level, what};
    if (tls->kernel == NULL)
        tls_bio_say(&tls->bio, RECORD_ALERT, said, sizeof said);
    else if (!tls->conn->sending)
        sendmsg(tls->conn->fd, tls_kernel_alert(tls->kernel, level, what),
                MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* What is no record of one who keeps to the rules: it is told so, and that is the end. */
static void refuse(struct conn *conn, int alert)
{
    tls_tell(tls_of(conn), SSL3_AL_FATAL, (uint8_t)alert);
    fail_for(conn, SSL_alert_desc_string_long(alert));
}

static void hear_alert(struct conn *conn, const uint8_t *said, size_t len)
{
    if (len != 2)
        refuse(conn, SSL_AD_DECODE_ERROR);
    else if (said[1] == SSL_AD_CLOSE_NOTIFY)
        heard_the_end(conn);
    else if (said[1] != SSL_AD_USER_CANCELLED) /* which the end follows */
        fail_for(conn, SSL_alert_desc_string_long(said[1]));
}

/* Behind a handshake of 1.3 a client has nothing else to say of this kind; and no part of it may be
 * under the next keys. It may come in parts (5.1). */
static void hear_update(struct conn *conn, const uint8_t *said, size_t len)
{
    static const uint8_t update[] = {SSL3_MT_KEY_UPDATE, 0, 0, 1};
    struct tls *tls = tls_of(conn);
    const size_t had = tls->update_len, whole = sizeof update + 1;
    const size_t compared = had + len < whole ? len : sizeof update - had;
    if (len == 0 || had + len > whole || memcmp(said, update + had, compared) != 0 ||
        (had + len == whole && said[len - 1] > SSL_KEY_UPDATE_REQUESTED)) {
        refuse(conn, SSL_AD_UNEXPECTED_MESSAGE);
        return;
    }
    tls->update_len = had + len < whole ? (uint8_t)(had + len) : 0;
    if (tls->update_len > 0)
        return;
    const bool is_asked = said[len - 1] == SSL_KEY_UPDATE_REQUESTED;
    if (is_asked && tls->kernel != NULL) { /* which takes no other keys, and nothing may follow */
        refuse(conn, SSL_AD_INTERNAL_ERROR);
        return;
    }
    tls->kernel_tried = tls->kernel_tried || is_asked;
    if (!record_renew(&tls->bio.heard) || (is_asked && !tls_bio_renew(&tls->bio)))
        fail_for(conn, "there is no room for other keys");
}

static void hear_record(struct conn *conn, uint8_t *record, size_t len)
{
    struct tls *tls = tls_of(conn);
    uint8_t *room = conn->protocol->room != NULL ? conn->protocol->room(conn, record_room(len))
                                                 : NULL;
    uint8_t *said = room != NULL ? room : record + RECORD_HEAD_BYTES;
    size_t said_len = 0;
    const int kind = record_open(&tls->bio.heard, record, len, said, &said_len);
    tls->no_data = kind == RECORD_DATA && said_len > 0 ? 0 : tls->no_data + 1;
    if (kind < 0)
        refuse(conn, -kind);
    else if (tls->no_data > NO_DATA_MAX)
        refuse(conn, SSL_AD_UNEXPECTED_MESSAGE);
    else if (kind == RECORD_ALERT)
        hear_alert(conn, said, said_len);
    else if (kind == RECORD_HANDSHAKE)
        hear_update(conn, said, said_len);
    else if (kind != RECORD_DATA || tls->update_len > 0) /* nothing comes between its parts */
        refuse(conn, SSL_AD_UNEXPECTED_MESSAGE);
    else if (said_len > 0)
        loop_received(conn, said, said_len);
}

/* Of a record that has not come whole before: its head, then what its head says. False: it is none,
 * or there is no memory. */
static bool hear_part(struct tls *tls)
{
    struct tls_bio *bio = &tls->bio;
    struct piece *part = &tls->heard;
    const size_t whole =
        part->len < RECORD_HEAD_BYTES ? RECORD_HEAD_BYTES : record_len(part->bytes);
    const size_t missing = whole - part->len, taken = missing < bio->in_len ? missing : bio->in_len;
    if (!piece_add(tls->conn, part, bio->in, taken, RECORD_WIRE_MAX))
        return false;
    bio->in += taken;
    bio->in_len -= taken;
    return part->len < RECORD_HEAD_BYTES || record_len(part->bytes) > 0;
}

static bool is_whole(const uint8_t *bytes, size_t len)
{
    const size_t whole = len >= RECORD_HEAD_BYTES ? record_len(bytes) : 0;
    return whole > 0 && whole <= len;
}

static void hear_records(struct conn *conn)
{
    struct tls *tls = tls_of(conn);
    struct tls_bio *bio = &tls->bio;
    while (bio->in_len > 0 && !conn->closed && !tls->ended) {
        if (tls->heard.len == 0 && is_whole(bio->in, bio->in_len)) {
            uint8_t *record = bio->in;
            const size_t len = record_len(record);
            bio->in += len;
            bio->in_len -= len;
            hear_record(conn, record, len);
        } else if (!hear_part(tls)) {
            refuse(conn, tls->heard.len > 0 && tls->heard.bytes[0] == RECORD_DATA
                             ? SSL_AD_RECORD_OVERFLOW
                             : SSL_AD_UNEXPECTED_MESSAGE);
        } else if (is_whole(tls->heard.bytes, tls->heard.len)) {
            const size_t len = tls->heard.len;
            tls->heard.len = 0;
            hear_record(conn, tls->heard.bytes, len);
        }
    }
    if (tls->heard.len == 0)
        piece_drop(conn, &tls->heard);
}

/* All that came has been read, so that to ask again would cost a buffer and say nothing. */
static bool all_heard(const struct tls *tls)
{
    return tls->bio.in_len == 0 && SSL_pending(tls->ssl) == 0;
}

/* Behind a handshake of 1.2. */
static void hear_session(struct conn *conn)
{
    struct tls *tls = tls_of(conn);
    uint8_t *plain = wires_of(conn)->plain;
    for (;;) {
        size_t have = 0;
        int got = 1;
        ERR_clear_error();
        while (PLAIN_BYTES - have >= RECORD_BYTES &&
               (got = SSL_read(tls->ssl, plain + have, (int)(PLAIN_BYTES - have))) > 0)
            if (have += (size_t)got, all_heard(tls))
                break;
        const int why = got <= 0         ? SSL_get_error(tls->ssl, got)
                        : all_heard(tls) ? SSL_ERROR_WANT_READ
                                         : SSL_ERROR_NONE;
        if (have > 0)
            loop_received(conn, plain, have);
        if (conn->closed)
            return;
        if (why == SSL_ERROR_WANT_READ)
            return;
        if (why == SSL_ERROR_ZERO_RETURN) {
            heard_the_end(conn);
            return;
        }
        if (why != SSL_ERROR_NONE) {
            tls_fail(conn);
            return;
        }
    }
}

void tls_hear(struct conn *conn)
{
    if (tls_has_records(tls_of(conn)))
        hear_records(conn);
    else
        hear_session(conn);
}
