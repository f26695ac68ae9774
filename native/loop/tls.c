/* TLS between an engine and a connection: what came goes through OpenSSL to loop_received(), what
 * is said goes through it to the engine.
 *
 * OpenSSL sees no socket. It reads from the engine's own buffer, for as long as a call of
 * received() lasts, and keeps what is no whole record; it writes into a piece that is sent when
 * the call ends. A piece that is being sent is not touched: what is said meanwhile is the next.
 * It shakes hands; behind a handshake of 1.3 records are opened in the engine's buffer, and sealed
 * in the piece (record.h). Behind one of 1.2 it goes on. */
#include "loop/tls.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "loop/loop.h"
#include "loop/seal.h"
#include "loop/tls_context.h"
#include "loop/tls_hear.h"
#include "loop/tls_state.h"

#define HEARD_MAX 16384u          /* of one that waits in line */
#define HANDSHAKE 22              /* the first byte of who speaks TLS */

#define HANDSHAKES_MAX 256u
#define HANDSHAKE_OLD_MS 1000 /* then it makes room for others */
#define WAITING_MAX 1024u
#define TURN_US 2000 /* for handshakes that begin */
#define BURST_SHARE 4 /* of a second's handshakes, at once */

/* ---- lists ---- */

static void enlist(struct list *list, struct tls *tls)
{
    assert(tls->list == NULL);
    tls->list = list;
    tls->since_ms = tls->conn->loop->now_ms;
    tls->next_listed = NULL;
    tls->prev_listed = list->end;
    *list->end = tls;
    list->end = &tls->next_listed;
    list->count++;
}

static void delist(struct tls *tls)
{
    struct list *list = tls->list;
    if (list == NULL)
        return;
    *tls->prev_listed = tls->next_listed;
    if (tls->next_listed != NULL)
        tls->next_listed->prev_listed = tls->prev_listed;
    else
        list->end = tls->prev_listed;
    list->count--;
    tls->list = NULL;
}

static bool make_ssl(struct tls *tls)
{
    SSL *ssl = SSL_new(wires_of(tls->conn)->context);
    if (ssl == NULL || !tls_bio_attach(ssl, &tls->bio)) {
        SSL_free(ssl);
        return false;
    }
    SSL_set_accept_state(ssl);
    tls->ssl = ssl;
    return true;
}

/* ---- sending ---- */

static void push(struct conn *conn)
{
    struct tls *tls = tls_of(conn);
    struct net *net = conn->loop->net;
    assert(tls->out.sent < tls->out.len);
    tls->flushing = conn->sending = true;
    if (conn->send_ms == 0)
        conn->send_ms = conn->loop->now_ms;
    net->send(net, conn, tls->out.bytes + tls->out.sent, tls->out.len - tls->out.sent);
}

static void flush(struct conn *conn)
{
    struct tls *tls = tls_of(conn);
    if (tls->flushing || tls->bio.next.len == 0 || conn->closed)
        return;
    assert(tls->out.bytes == NULL);
    tls->out = tls->bio.next;
    tls->bio.next = (struct piece){0};
    push(conn);
}

/* That nothing follows. */
static void say_the_end(struct tls *tls)
{
    ERR_clear_error();
    if (tls_has_records(tls))
        tls_tell(tls, SSL3_AL_WARNING, SSL_AD_CLOSE_NOTIFY);
    else
        SSL_shutdown(tls->ssl);
    ERR_clear_error();
}

/* ---- by the kernel ---- */

/* Whether the kernel seals what follows, of which there is so much. It is asked once, and nothing
 * of ours may be left that would come behind what it seals: else another time. */
static bool kernel_seals(struct conn *conn, size_t len)
{
    struct tls *tls = tls_of(conn);
    if (tls->kernel != NULL)
        return true;
    if (len < KERNEL_FROM_BYTES || tls->kernel_tried || tls->bio.between ||
        !tls_has_records(tls) || !wires_of(conn)->kernel || tls->bio.next.len > 0 || tls->ending)
        return false;
    assert(!tls->flushing && tls->out.bytes == NULL); /* who sends waits for that */
    tls->kernel_tried = true;
    const uint32_t records = KEY_RECORDS_MAX - tls->records_left;
    tls->kernel = tls_kernel_new(conn->fd, &tls->bio.said, records);
    if (tls->kernel == NULL)
        return false;
    record_end(&tls->bio.said); /* two who count the same records would give a number twice */
    wires_of(conn)->figures.kernel++;
    return true;
}

static void kernel_say(struct conn *conn, const struct msghdr *message)
{
    struct net *net = conn->loop->net;
    if (tls_of(conn)->ending)
        conn_close(conn);
    else
        net->send_now(net, conn, message);
}

/* Its last record is near, and the kernel takes no other keys: who has no answer to wait for does
 * not miss the connection. */
static void end_of_keys(struct conn *conn)
{
    const struct tls *tls = tls_of(conn);
    const uint32_t records = tls->kernel->records;
    if (conn->closed || records < KEY_RECORDS_MAX)
        return;
    const bool is_idle = conn->out_first == NULL && conn->protocol->engaged != NULL &&
                         conn->protocol->engaged(conn) == ENGAGED_NOT;
    if (is_idle || records >= KERNEL_RECORDS_MAX)
        conn_close(conn);
}

/* An alert, if one was under way, or what loop_sent() is told. */
static void kernel_sent(struct conn *conn, int64_t result)
{
    struct tls *tls = tls_of(conn);
    struct net *net = conn->loop->net;
    if (result > 0)
        tls_kernel_said(tls->kernel, (size_t)result);
    if (!tls->flushing) {
        loop_sent(conn, result);
        end_of_keys(conn);
    } else if (result == 0) { /* there was no room */
        net->send_now(net, conn, &tls->kernel->message);
    } else {
        tls->flushing = false;
        tls->shut = result > 0 && !tls_kernel_owes(tls->kernel, conn->fd, conn->loop->now_ms);
        conn->send_ms = 0;
        if (tls->shut) /* else the other end closes, which knows that nothing follows */
            shutdown(conn->fd, SHUT_WR);
        loop_sent(conn, result < 0 ? result : 0);
    }
}

static bool tls_owes(struct conn *conn)
{
    struct tls *tls = tls_of(conn);
    return tls->kernel != NULL && tls_kernel_owes(tls->kernel, conn->fd, conn->loop->now_ms);
}

/* ---- sending ---- */

static void seal(struct conn *conn, const void *bytes, size_t len)
{
    struct tls *tls = tls_of(conn);
    assert(len > 0 && !tls->flushing && tls->said == 0 && tls->kernel == NULL);
    if (tls->ending) { /* it was said that nothing follows */
        conn_close(conn);
        return;
    }
    if (!tls_bio_seal(tls->ssl, &tls->bio, bytes, len, &tls->records_left)) {
        conn->sending = false;
        tls_fail(conn);
        return;
    }
    tls->said = (uint32_t)len;
    flush(conn);
}

static void tls_send(struct conn *conn, const void *bytes, size_t len)
{
    struct tls *tls = tls_of(conn);
    if (!tls->established) {
        tls->held = true; /* asked for again after the handshake */
        return;
    }
    const size_t most = sealed_at_once(&tls->bio);
    if (!kernel_seals(conn, len))
        seal(conn, bytes, len < most ? len : most);
    else if (tls->ending)
        conn_close(conn);
    else
        conn->loop->net->send(conn->loop->net, conn, bytes, len);
}

/* Pieces of the log lie apart only where its memory begins anew, and where chunks begin: what is
 * short is put together, so that not each is a record. */
static void tls_send_now(struct conn *conn, const struct msghdr *message)
{
    uint8_t *together = wires_of(conn)->together;
    const struct iovec *piece = message->msg_iov;
    size_t len = 0;
    assert(message->msg_iovlen > 0);
    for (size_t i = 0; i < message->msg_iovlen; i++)
        len += piece[i].iov_len;
    if (tls_of(conn)->established && kernel_seals(conn, len)) {
        kernel_say(conn, message);
        return;
    }
    if (!tls_of(conn)->established || piece->iov_len >= RECORD_BYTES || message->msg_iovlen == 1) {
        tls_send(conn, piece->iov_base, piece->iov_len);
        return;
    }
    len = 0;
    for (size_t i = 0; i < message->msg_iovlen && len < SEALED_AT_ONCE; i++) {
        const size_t room = SEALED_AT_ONCE - len;
        const size_t taken = piece[i].iov_len < room ? piece[i].iov_len : room;
        memcpy(together + len, piece[i].iov_base, taken);
        len += taken;
    }
    seal(conn, together, len);
}

static void tls_sent(struct conn *conn, int64_t result)
{
    struct tls *tls = tls_of(conn);
    if (tls->kernel != NULL) {
        kernel_sent(conn, result);
        return;
    }
    assert(tls->flushing);
    if (result < 0) {
        tls->flushing = false;
        loop_sent(conn, result);
        return;
    }
    tls->out.sent += (uint32_t)result;
    assert(tls->out.sent <= tls->out.len);
    if (tls->out.sent < tls->out.len) {
        push(conn);
        return;
    }
    tls->flushing = false;
    piece_drop(conn, &tls->out);
    if (tls->bio.next.len > 0) {
        flush(conn);
        return;
    }
    if (tls->ending && !tls->shut) {
        tls->shut = true;
        shutdown(conn->fd, SHUT_WR);
    }
    const uint32_t said = tls->said;
    tls->said = 0;
    tls->held = false; /* it may be sent again from now on */
    if (conn->out_first == NULL)
        conn->send_ms = 0;
    loop_sent(conn, said);
}

static void tls_shutdown(struct conn *conn)
{
    struct tls *tls = tls_of(conn);
    if (tls->ending || tls->failed)
        return;
    tls->ending = true;
    if (!tls->established) {
        tls->shut = true;
        shutdown(conn->fd, SHUT_WR);
        return;
    }
    if (tls->kernel != NULL) { /* as the next thing that is sent */
        struct net *net = conn->loop->net;
        assert(!conn->sending && conn->out_first == NULL);
        tls->flushing = conn->sending = true;
        conn->send_ms = conn->loop->now_ms;
        net->send_now(net, conn,
                      tls_kernel_alert(tls->kernel, SSL3_AL_WARNING, SSL_AD_CLOSE_NOTIFY));
        return;
    }
    say_the_end(tls);
    flush(conn);
}

/* The last word is tried once: close_notify, or the alert that OpenSSL has written. */
static void tls_close(struct conn *conn)
{
    struct tls *tls = tls_of(conn);
    struct net *net = conn->loop->net;
    delist(tls);
    if (tls->established && !tls->failed && !tls->ending)
        say_the_end(tls);
    if (!tls->flushing && tls->bio.next.len > 0)
        send(conn->fd, tls->bio.next.bytes, tls->bio.next.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    net->close(net, conn);
}

/* ---- handshakes ---- */

/* OpenSSL's session, and what it holds. */
static void let_go(struct tls *tls)
{
    SSL_free(tls->ssl);
    tls->ssl = NULL;
}

/* Who has more than one name has none: others might read another one of them. */
static void note_name(struct tls *tls)
{
    X509 *shown = SSL_get0_peer_certificate(tls->ssl); /* also of a session that goes on */
    const X509_NAME *subject = shown != NULL ? X509_get_subject_name(shown) : NULL;
    const int at = subject != NULL ? X509_NAME_get_index_by_NID(subject, NID_commonName, -1) : -1;
    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
        return;
    const ASN1_STRING *name = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
    const int len = ASN1_STRING_length(name);
    if (len <= 0 || (size_t)len > sizeof tls->name)
        return;
    memcpy(tls->name, ASN1_STRING_get0_data(name), (size_t)len);
    tls->name_len = (uint8_t)len;
}

static void shake(struct conn *conn)
{
    struct tls *tls = tls_of(conn);
    struct tls_figures *figures = &wires_of(conn)->figures;
    ERR_clear_error();
    const int done = SSL_do_handshake(tls->ssl);
    if (done == 1 && SSL_version(tls->ssl) == TLS1_3_VERSION &&
        !tls_bio_take_over(tls->ssl, &tls->bio)) {
        tls_fail(conn);
    } else if (done == 1) {
        delist(tls);
        tls->established = true;
        figures->handshakes++;
        figures->resumed += SSL_session_reused(tls->ssl) == 1;
        note_name(tls);
        if (tls_has_records(tls))
            let_go(tls);
    } else if (SSL_get_error(tls->ssl, done) != SSL_ERROR_WANT_READ) {
        tls_fail(conn);
    }
}

static void feed(struct conn *conn, uint8_t *bytes, size_t len)
{
    struct tls *tls = tls_of(conn);
    tls->bio.in = bytes;
    tls->bio.in_len = len;
    if (!tls->established)
        shake(conn);
    if (tls->established && !conn->closed)
        tls_hear(conn);
    assert(conn->closed || tls->ended || tls->bio.in_len == 0);
    tls->bio.in = NULL;
    tls->bio.in_len = 0;
    flush(conn);
    if (tls->held && tls->established && !tls->flushing && !conn->closed) {
        tls->held = false;
        loop_sent(conn, 0);
    }
}

/* ---- whose turn it is ---- */

static void count_time(struct loop *loop, struct tls_wires *wires)
{
    const int64_t now_us = loop->monotonic_us;
    if (wires->turn_us != now_us)
        wires->spent_us = 0;
    wires->turn_us = now_us;
    int64_t passed_us = now_us - wires->counted_us;
    if (passed_us > 1000000)
        passed_us = 1000000;
    const int64_t most = (int64_t)(wires->per_s / BURST_SHARE + 1) * 1000000;
    wires->counted_us = now_us;
    wires->allowed += passed_us * wires->per_s;
    if (wires->allowed > most)
        wires->allowed = most;
}

/* One that has begun long ago goes, if there is no other place. */
static bool has_place(struct loop *loop, struct tls_wires *wires)
{
    struct tls *oldest = wires->under_way.first;
    if (wires->under_way.count < HANDSHAKES_MAX)
        return true;
    if (loop->now_ms - oldest->since_ms < HANDSHAKE_OLD_MS)
        return false;
    wires->figures.late++;
    conn_close(oldest->conn);
    return true;
}

static bool may_begin(struct loop *loop, struct tls_wires *wires)
{
    count_time(loop, wires);
    return wires->allowed >= 1000000 && wires->spent_us < TURN_US && has_place(loop, wires);
}

static void begin(struct conn *conn, uint8_t *bytes, size_t len)
{
    struct tls *tls = tls_of(conn);
    struct tls_wires *wires = wires_of(conn);
    const int64_t began_us = monotonic_us();
    wires->allowed -= 1000000;
    if (!make_ssl(tls)) {
        conn_close(conn);
        return;
    }
    enlist(&wires->under_way, tls);
    feed(conn, bytes, len);
    wires->spent_us += monotonic_us() - began_us;
}

static void stand_in_line(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct tls *tls = tls_of(conn);
    struct tls_wires *wires = wires_of(conn);
    if (tls->list == NULL && wires->line.count < WAITING_MAX)
        enlist(&wires->line, tls);
    if (tls->list == NULL || !piece_add(conn, &tls->heard, bytes, len, HEARD_MAX)) {
        wires->figures.refused++;
        conn_close(conn);
    }
}

/* To who speaks HTTP without TLS it is said in HTTP; nobody else is told anything. */
static void heard_no_tls(struct conn *conn, uint8_t first)
{
    static const char text[] = "this port speaks TLS: call it as https://\n";
    char answer[256];
    wires_of(conn)->figures.plain++;
    if (first >= 'A' && first <= 'Z') {
        const int len = snprintf(answer, sizeof answer,
                                 "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
                                 "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                                 sizeof text - 1, text);
        assert(len > 0 && (size_t)len < sizeof answer);
        send(conn->fd, answer, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    conn_close(conn);
}

static void tls_received(struct conn *conn, uint8_t *bytes, size_t len)
{
    struct tls *tls = tls_of(conn);
    struct tls_wires *wires = wires_of(conn);
    if (tls->ended)
        return;
    if (tls->ssl != NULL || tls->established)
        feed(conn, bytes, len);
    else if (tls->list == NULL && bytes[0] != HANDSHAKE)
        heard_no_tls(conn, bytes[0]);
    else if (tls->list == NULL && wires->line.count == 0 && may_begin(conn->loop, wires))
        begin(conn, bytes, len);
    else
        stand_in_line(conn, bytes, len);
}

/* Whoever cuts a connection looks like one who ends it. A request says itself where it ends: what
 * came whole is whole and is answered, as many clients that end without a word expect; what did
 * not is dropped by the protocol, as without TLS. */
static void tls_receive_ended(struct conn *conn, int error)
{
    struct tls *tls = tls_of(conn);
    if (tls->ended) {
        if (error != 0)
            conn_close(conn);
        return;
    }
    figures_of(conn)->cut += tls->established;
    if (error == 0 && tls->established && !tls->failed)
        tls->ended = true;
    else if (error == 0)
        error = ECONNRESET;
    loop_receive_ended(conn, error);
}

static void close_late(struct loop *loop, struct list *list, struct tls_figures *figures)
{
    const int64_t limit_ms = loop->tls->handshake_ms;
    while (list->first != NULL && loop->now_ms - list->first->since_ms > limit_ms) {
        figures->late++;
        conn_close(list->first->conn); /* which takes it out of the list */
    }
}

void tls_tend(struct loop *loop)
{
    struct tls_wires *wires = loop->tls;
    if (wires == NULL)
        return;
    close_late(loop, &wires->under_way, &wires->figures);
    close_late(loop, &wires->line, &wires->figures);
    while (wires->line.first != NULL && may_begin(loop, wires)) {
        struct tls *tls = wires->line.first;
        struct piece heard = tls->heard;
        delist(tls);
        tls->heard = (struct piece){0};
        begin(tls->conn, heard.bytes, heard.len);
        piece_drop(tls->conn, &heard);
    }
}

int64_t tls_in_us(struct loop *loop)
{
    struct tls_wires *wires = loop->tls;
    if (wires == NULL || wires->line.first == NULL)
        return INT32_MAX;
    count_time(loop, wires);
    if (wires->under_way.count == HANDSHAKES_MAX)
        return 1000 * (int64_t)HANDSHAKE_OLD_MS / 4;
    if (wires->allowed < 1000000)
        return (1000000 - wires->allowed) / wires->per_s + 1;
    return 0;
}

/* ---- life ---- */

static bool tls_opened(struct conn *conn)
{
    struct tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return false;
    assert(wires_of(conn) != NULL); /* a listener has the transport after tls_set() */
    tls->conn = tls->bio.counted = conn;
    tls->records_left = KEY_RECORDS_MAX;
    conn->wire = tls;
    return true;
}

static void tls_freed(struct conn *conn)
{
    struct tls *tls = tls_of(conn);
    delist(tls);
    let_go(tls);
    tls_kernel_free(tls->kernel);
    tls_bio_end(&tls->bio);
    piece_drop(conn, &tls->out);
    piece_drop(conn, &tls->heard);
    assert(conn->wire_bytes == 0);
    free(tls);
}

const struct transport tls_transport = {
    .opened = tls_opened,
    .freed = tls_freed,
    .received = tls_received,
    .receive_ended = tls_receive_ended,
    .sent = tls_sent,
    .send = tls_send,
    .send_now = tls_send_now,
    .shutdown = tls_shutdown,
    .close = tls_close,
    .owes = tls_owes,
};

static struct tls_wires *wires_made(struct loop *loop)
{
    if (loop->tls == NULL && (loop->tls = calloc(1, sizeof *loop->tls)) != NULL) {
        loop->tls->line.end = &loop->tls->line.first;
        loop->tls->under_way.end = &loop->tls->under_way.first;
    }
    return loop->tls;
}

struct conn *tls_adopt(struct loop *loop, int fd, const struct protocol *protocol,
                       struct seal *seal)
{
    if (seal == NULL)
        return loop_adopt(loop, fd, protocol, &plain_transport);
    assert(seal->established && seal->ssl != NULL);
    if (wires_made(loop) == NULL || !tls_bio_take_over(seal->ssl, &seal->bio)) {
        seal->failed = true;
        close(fd);
        return NULL;
    }
    struct conn *conn = loop_adopt(loop, fd, protocol, &tls_transport);
    if (conn == NULL)
        return NULL;
    struct tls *tls = tls_of(conn);
    seal_give(seal, &tls->bio);
    tls->established = tls->bio.between = true;
    return conn;
}

bool tls_set(struct loop *loop, const struct tls_options *options, char *why)
{
    assert(options->handshakes_per_s > 0);
    assert(options->handshakes_per_s <= TLS_HANDSHAKES_PER_S_MAX && options->handshake_ms > 0);
    SSL_CTX *context = tls_context_new(options, why);
    struct tls_wires *wires = context != NULL ? wires_made(loop) : NULL;
    if (context == NULL || wires == NULL) {
        SSL_CTX_free(context);
        return false;
    }
    SSL_CTX_free(wires->context); /* connections that have it keep it */
    wires->context = context;
    wires->per_s = options->handshakes_per_s;
    wires->handshake_ms = options->handshake_ms;
    wires->kernel = options->kernel;
    return true;
}

void tls_free(struct loop *loop)
{
    if (loop->tls == NULL)
        return;
    SSL_CTX_free(loop->tls->context);
    free(loop->tls);
    loop->tls = NULL;
}

size_t tls_name(const struct conn *conn, const char **name)
{
    if (conn->transport != &tls_transport)
        return 0;
    *name = tls_of(conn)->name;
    return tls_of(conn)->name_len;
}

const struct tls_figures *tls_figures(const struct loop *loop)
{
    struct tls_wires *wires = loop->tls;
    if (wires == NULL || wires->context == NULL)
        return NULL;
    wires->figures.under_way = wires->under_way.count;
    wires->figures.in_line = wires->line.count;
    return &wires->figures;
}
