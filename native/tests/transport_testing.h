/* Transports that are not plain, for tests: what lies on their wires is not what protocols say.
 *
 * "Sealed" does what TLS does, without its cryptography: records of their own size, of which each
 * byte is another one than was said; both ends greet first, and say when they end. */
#ifndef BARCO_TRANSPORT_TESTING_H
#define BARCO_TRANSPORT_TESTING_H

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "codec_testing.h"
#include "loop/loop.h"

enum record { RECORD_HELLO = 'H', RECORD_DATA = 'D', RECORD_BYE = 'B' };

#define RECORD_HEAD_BYTES 3 /* kind, length */
#define RECORD_MAX 700      /* of what is said */

/* One direction of a connection, as its reader sees it. */
struct unsealing {
    uint8_t record[RECORD_HEAD_BYTES + RECORD_MAX];
    size_t filled;
    uint8_t count; /* of records: none is taken twice */
    bool greeted, ended;
};

static inline size_t seal(uint8_t *count, enum record kind, const uint8_t *bytes, size_t len,
                          uint8_t *out)
{
    out[0] = (uint8_t)(kind ^ ++*count);
    out[1] = (uint8_t)len;
    out[2] = (uint8_t)(len >> 8);
    for (size_t i = 0; i < len; i++)
        out[RECORD_HEAD_BYTES + i] = bytes[i] ^ (uint8_t)(0xa5 + i + *count);
    return RECORD_HEAD_BYTES + len;
}

/* Takes one byte. The kind of the record that it completes, or 0; what is no record: -1. */
static inline int unseal(struct unsealing *in, uint8_t byte, size_t *len)
{
    in->record[in->filled++] = byte;
    if (in->filled < RECORD_HEAD_BYTES)
        return 0;
    *len = in->record[1] | (size_t)in->record[2] << 8;
    if (*len > RECORD_MAX)
        return -1;
    if (in->filled < RECORD_HEAD_BYTES + *len)
        return 0;
    const int kind = in->record[0] ^ ++in->count;
    for (size_t i = 0; i < *len; i++)
        in->record[RECORD_HEAD_BYTES + i] ^= (uint8_t)(0xa5 + i + in->count);
    in->filled = 0;
    const bool first = !in->greeted;
    if (in->ended || first != (kind == RECORD_HELLO) ||
        (kind != RECORD_DATA && kind != RECORD_HELLO && kind != RECORD_BYE))
        return -1;
    in->greeted = true;
    in->ended = kind == RECORD_BYE;
    return kind;
}

struct sealed {
    struct unsealing in;
    uint8_t out[2 * (RECORD_HEAD_BYTES + RECORD_MAX)]; /* two, for the end behind another */
    size_t out_len, out_sent, said;                    /* said: how much of it is the loop's */
    uint8_t count;
    bool ending, shut;
};

static inline struct sealed *sealed_of(const struct conn *conn) { return conn->wire; }

static inline bool sealed_opened(struct conn *conn)
{
    return (conn->wire = calloc(1, sizeof(struct sealed))) != NULL;
}

static inline void sealed_freed(struct conn *conn) { free(conn->wire); }

static inline void sealed_flush(struct conn *conn)
{
    struct sealed *s = sealed_of(conn);
    conn->sending = true;
    conn->loop->net->send(conn->loop->net, conn, s->out + s->out_sent, s->out_len - s->out_sent);
}

static inline void sealed_say(struct conn *conn, enum record kind)
{
    struct sealed *s = sealed_of(conn);
    CHECK(s->out_len + RECORD_HEAD_BYTES <= sizeof s->out);
    s->out_len += seal(&s->count, kind, NULL, 0, s->out + s->out_len);
    if (!conn->sending)
        sealed_flush(conn);
}

static inline void sealed_started(struct conn *conn) { sealed_say(conn, RECORD_HELLO); }

static inline void sealed_received(struct conn *conn, uint8_t *bytes, size_t len)
{
    struct unsealing *in = &sealed_of(conn)->in;
    for (size_t i = 0, said = 0; i < len && !conn->closed; i++) {
        const int kind = unseal(in, bytes[i], &said);
        if (kind < 0)
            conn_close(conn);
        else if (kind == RECORD_DATA)
            loop_received(conn, in->record + RECORD_HEAD_BYTES, said);
        else if (kind == RECORD_BYE)
            loop_receive_ended(conn, 0);
    }
}

/* An end that was not announced may be somebody else's cut. */
static uint32_t sealed_cuts;

static inline void sealed_receive_ended(struct conn *conn, int error)
{
    if (!sealed_of(conn)->in.ended) {
        sealed_cuts++;
        loop_receive_ended(conn, error != 0 ? error : ECONNRESET);
    } else if (error != 0)
        conn_close(conn);
}

static inline void sealed_sent(struct conn *conn, int64_t result)
{
    struct sealed *s = sealed_of(conn);
    if (result < 0) {
        loop_sent(conn, result);
        return;
    }
    s->out_sent += (size_t)result;
    if (s->out_sent < s->out_len) {
        sealed_flush(conn);
        return;
    }
    const size_t said = s->said;
    s->out_len = s->out_sent = s->said = 0;
    if (s->ending && !s->shut) {
        s->shut = true;
        shutdown(conn->fd, SHUT_WR);
    }
    loop_sent(conn, (int64_t)said);
}

static inline void sealed_send_now(struct conn *conn, const struct msghdr *message)
{
    struct sealed *s = sealed_of(conn);
    uint8_t bytes[RECORD_MAX];
    size_t len = 0;
    for (size_t i = 0; i < message->msg_iovlen && len < sizeof bytes; i++) {
        const struct iovec *piece = &message->msg_iov[i];
        const size_t room = sizeof bytes - len;
        const size_t taken = piece->iov_len < room ? piece->iov_len : room;
        memcpy(bytes + len, piece->iov_base, taken);
        len += taken;
    }
    CHECK(s->out_len == 0 && !s->ending);
    s->out_len = seal(&s->count, RECORD_DATA, bytes, len, s->out);
    s->said = len;
    sealed_flush(conn);
}

static inline void sealed_send(struct conn *conn, const void *bytes, size_t len)
{
    struct iovec piece = {(void *)bytes, len};
    sealed_send_now(conn, &(struct msghdr){.msg_iov = &piece, .msg_iovlen = 1});
}

static inline void sealed_shutdown(struct conn *conn)
{
    struct sealed *s = sealed_of(conn);
    if (s->ending)
        return;
    s->ending = true;
    sealed_say(conn, RECORD_BYE);
}

static inline void to_net_close(struct conn *conn)
{
    conn->loop->net->close(conn->loop->net, conn);
}

static const struct transport sealed_transport = {
    .opened = sealed_opened,
    .started = sealed_started,
    .freed = sealed_freed,
    .received = sealed_received,
    .receive_ended = sealed_receive_ended,
    .sent = sealed_sent,
    .send = sealed_send,
    .send_now = sealed_send_now,
    .shutdown = sealed_shutdown,
    .close = to_net_close,
};

/* "Trickle" is plain, and passes on one byte at a time, either way. */

struct trickle {
    struct msghdr message; /* until the engine has submitted it */
    struct iovec piece;
};

static inline bool trickle_opened(struct conn *conn)
{
    return (conn->wire = calloc(1, sizeof(struct trickle))) != NULL;
}

static inline void trickle_received(struct conn *conn, uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t *byte = exact_copy(bytes + i, 1);
        loop_received(conn, byte, 1);
        free(byte);
    }
}

static inline void trickle_send(struct conn *conn, const void *bytes, size_t len)
{
    conn->loop->net->send(conn->loop->net, conn, bytes, len > 0);
}

static inline void trickle_send_now(struct conn *conn, const struct msghdr *message)
{
    struct trickle *t = conn->wire;
    t->piece = (struct iovec){message->msg_iov->iov_base, 1};
    t->message = (struct msghdr){.msg_iov = &t->piece, .msg_iovlen = 1};
    conn->loop->net->send_now(conn->loop->net, conn, &t->message);
}

static inline void trickle_shutdown(struct conn *conn) { shutdown(conn->fd, SHUT_WR); }

static const struct transport trickle_transport = {
    .bare = true,
    .opened = trickle_opened,
    .freed = sealed_freed,
    .received = trickle_received,
    .receive_ended = loop_receive_ended,
    .sent = loop_sent,
    .send = trickle_send,
    .send_now = trickle_send_now,
    .shutdown = trickle_shutdown,
    .close = to_net_close,
};

#endif
