/* transport: how the bytes of a connection travel. What a protocol says and hears (conn.h) goes
 * through this table, whichever engine (net.h) moves it; so what lies on the wire can be something
 * else, such as records of TLS, and neither protocols nor engines know.
 *
 *     engine -> received, receive_ended, sent -> loop_received(), loop_receive_ended(), loop_sent()
 *     conn, send -> send, send_now, shutdown, close -> the engine's calls
 *
 * The loop counts bytes of the protocol, engines those of the wire: a transport keeps the account
 * between them. One send is under way at a time, and while one is, conn->sending is set. */
#ifndef BARCO_TRANSPORT_H
#define BARCO_TRANSPORT_H

#include "loop/conn.h"

struct msghdr;

struct transport {
    /* The protocol's bytes are the wire's: also where there is no connection yet (admit.c). */
    bool bare;
    /* Makes conn->wire, where one is needed. False: there is no memory. NULL: nothing to do. */
    bool (*opened)(struct conn *conn);
    /* The engine has the connection: something may be sent before anything is heard. Or NULL. */
    void (*started)(struct conn *conn);
    void (*freed)(struct conn *conn); /* or NULL */

    /* By engines, of a connection that is not closed. */
    void (*received)(struct conn *conn, uint8_t *bytes, size_t len); /* may write over them */
    void (*receive_ended)(struct conn *conn, int error); /* 0: the other end sends nothing more */
    void (*sent)(struct conn *conn, int64_t result);     /* bytes of the wire, or -errno */

    /* By the loop. Of what is to be sent, loop_sent() tells how much was, maybe not all. */
    void (*send)(struct conn *conn, const void *bytes, size_t len);
    void (*send_now)(struct conn *conn, const struct msghdr *message); /* see net.h */
    void (*shutdown)(struct conn *conn); /* nothing follows; what comes is still read */
    void (*close)(struct conn *conn);
    /* Whether a close would take back what loop_sent() has told of: the kernel has it, but TCP has
     * no room for it yet. NULL: it never would. Asked again about twice a second. */
    bool (*owes)(struct conn *conn);
};

extern const struct transport plain_transport;

static inline bool transport_owes(struct conn *conn)
{
    return conn->transport->owes != NULL && conn->transport->owes(conn);
}

/* What engines call. */
static inline void transport_received(struct conn *conn, uint8_t *bytes, size_t len)
{
    if (!conn->closed)
        conn->transport->received(conn, bytes, len);
}

static inline void transport_receive_ended(struct conn *conn, int error)
{
    if (!conn->closed)
        conn->transport->receive_ended(conn, error);
}

static inline void transport_sent(struct conn *conn, int64_t result)
{
    if (conn->closed)
        conn->sending = false;
    else
        conn->transport->sent(conn, result);
}

#endif
