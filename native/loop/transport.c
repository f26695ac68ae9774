/* The plain transport: what is said is what lies on the wire. */
#include "loop/transport.h"

#include <sys/socket.h>

#include "loop/loop.h"

static void plain_received(struct conn *conn, uint8_t *bytes, size_t len)
{
    loop_received(conn, bytes, len);
}

static void plain_send(struct conn *conn, const void *bytes, size_t len)
{
    struct net *net = conn->loop->net;
    net->send(net, conn, bytes, len);
}

static void plain_send_now(struct conn *conn, const struct msghdr *message)
{
    struct net *net = conn->loop->net;
    net->send_now(net, conn, message);
}

static void plain_shutdown(struct conn *conn) { shutdown(conn->fd, SHUT_WR); }

static void plain_close(struct conn *conn)
{
    struct net *net = conn->loop->net;
    net->close(net, conn);
}

const struct transport plain_transport = {
    .bare = true,
    .received = plain_received,
    .receive_ended = loop_receive_ended,
    .sent = loop_sent,
    .send = plain_send,
    .send_now = plain_send_now,
    .shutdown = plain_shutdown,
    .close = plain_close,
};
