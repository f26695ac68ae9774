/* What connections send, and in which order: while clients wait for appends, answers of many bytes
 * go after all others, in portions, one of them in a turn of the loop. */
#include "loop/send.h"

#include <sys/socket.h>

#include "base/urgent.h"
#include "loop/loop.h"
#include "loop/output.h"
#include "loop/source.h"

static void send_first(struct conn *conn, uint32_t most)
{
    struct loop *loop = conn->loop;
    struct output *first = conn->out_first;
    struct source *source = first->source;
    if (source != NULL && source->lost) {
        conn_close(conn);
        return;
    }
    conn->sending = true;
    if (conn->send_ms == 0)
        conn->send_ms = loop->now_ms;
    if (source != NULL && source->copy == NULL) {
        struct msghdr *message = (struct msghdr *)first->own;
        source->fill(source, first->sent, most, message);
        conn->transport->send_now(conn, message);
        return;
    }
    const uint8_t *bytes = source != NULL ? source->copy : first->bytes;
    uint32_t len = first->len - first->sent;
    conn->transport->send(conn, bytes + first->sent, len < most ? len : most);
}

static void put_off(struct conn *conn)
{
    struct loop *loop = conn->loop;
    conn->put_off = true;
    conn->next_late = NULL;
    if (loop->late_last != NULL)
        loop->late_last->next_late = conn;
    else
        loop->late_first = conn;
    loop->late_last = conn;
}

void send_ready(struct conn *conn)
{
    if (conn->sending || conn->put_off || conn->out_first == NULL)
        return;
    const struct output *first = conn->out_first;
    /* What goes to another process are calls, and answers to calls: clients wait for those. */
    if (conn->protocol->clients && first->len - first->sent > URGENT_PORTION_BYTES &&
        urgent_at(conn->loop->monotonic_us))
        put_off(conn);
    else
        send_first(conn, UINT32_MAX);
}

static struct conn *take_late(struct loop *loop)
{
    struct conn *conn = loop->late_first;
    loop->late_first = conn->next_late;
    if (loop->late_first == NULL)
        loop->late_last = NULL;
    conn->put_off = false;
    return conn;
}

void send_late(struct loop *loop)
{
    bool sent = false;
    while (loop->late_first != NULL && !sent) {
        struct conn *conn = take_late(loop);
        if (conn->closed || conn->sending || conn->out_first == NULL)
            continue;
        sent = urgent_at(loop->monotonic_us); /* else all of them, and all of it */
        send_first(conn, sent ? URGENT_PORTION_BYTES : UINT32_MAX);
    }
}

void send_forget(struct conn *conn)
{
    struct loop *loop = conn->loop;
    if (!conn->put_off)
        return;
    struct conn *before = NULL, *at = loop->late_first;
    for (; at != conn; at = at->next_late)
        before = at;
    if (before != NULL)
        before->next_late = conn->next_late;
    else
        loop->late_first = conn->next_late;
    if (loop->late_last == conn)
        loop->late_last = before;
    conn->put_off = false;
}
