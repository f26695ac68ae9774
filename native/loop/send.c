/* What connections send, and in which order: while clients wait for appends, answers of many bytes
 * go after all others, in portions, one of them in a turn of the loop. */
#include "broker/reactor.h"

#include "log/lent.h"
#include "base/urgent.h"

static void send_first(struct reactor *reactor, struct conn *conn, uint32_t most)
{
    struct output *first = conn->out_first;
    struct lent *lent = first->lent;
    if (lent != NULL && lent->lost) {
        conn_close(conn);
        return;
    }
    conn->sending = true;
    if (conn->send_ms == 0)
        conn->send_ms = reactor->now_ms;
    if (lent != NULL && lent->copy == NULL) {
        struct lent_message *message = (struct lent_message *)first->own;
        lent_message_fill(lent, first->sent, most, message);
        reactor->net->send_now(reactor->net, conn, &message->header);
        return;
    }
    const uint8_t *bytes = lent != NULL ? lent->copy : first->bytes;
    uint32_t len = first->len - first->sent;
    reactor->net->send(reactor->net, conn, bytes + first->sent, len < most ? len : most);
}

static void put_off(struct reactor *reactor, struct conn *conn)
{
    conn->put_off = true;
    conn->next_late = NULL;
    if (reactor->late_last != NULL)
        reactor->late_last->next_late = conn;
    else
        reactor->late_first = conn;
    reactor->late_last = conn;
}

void send_ready(struct reactor *reactor, struct conn *conn)
{
    if (conn->sending || conn->put_off || conn->out_first == NULL)
        return;
    const struct output *first = conn->out_first;
    /* What goes to another process are calls, and answers to calls: clients wait for those. */
    if (conn->kind == CONN_HTTP && first->len - first->sent > URGENT_PORTION_BYTES &&
        urgent_at(reactor->monotonic_us))
        put_off(reactor, conn);
    else
        send_first(reactor, conn, UINT32_MAX);
}

static struct conn *take_late(struct reactor *reactor)
{
    struct conn *conn = reactor->late_first;
    reactor->late_first = conn->next_late;
    if (reactor->late_first == NULL)
        reactor->late_last = NULL;
    conn->put_off = false;
    return conn;
}

void send_late(struct reactor *reactor)
{
    bool sent = false;
    while (reactor->late_first != NULL && !sent) {
        struct conn *conn = take_late(reactor);
        if (conn->closed || conn->sending || conn->out_first == NULL)
            continue;
        sent = urgent_at(reactor->monotonic_us); /* else all of them, and all of it */
        send_first(reactor, conn, sent ? URGENT_PORTION_BYTES : UINT32_MAX);
    }
}

void send_forget(struct reactor *reactor, struct conn *conn)
{
    if (!conn->put_off)
        return;
    struct conn *before = NULL, *at = reactor->late_first;
    for (; at != conn; at = at->next_late)
        before = at;
    if (before != NULL)
        before->next_late = conn->next_late;
    else
        reactor->late_first = conn->next_late;
    if (reactor->late_last == conn)
        reactor->late_last = before;
    conn->put_off = false;
}
