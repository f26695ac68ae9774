/* A connection's life, and the input that is kept of it. */
#include "loop/conn.h"

#include <stdlib.h>
#include <string.h>

#include "loop/loop.h"
#include "loop/output.h"

/* ---- input ---- */

bool conn_keep(struct conn *conn, const uint8_t *bytes, size_t len)
{
    if (conn->in_len + len > conn->in_capacity) {
        size_t capacity = conn->in_len + len;
        capacity = capacity < 4096 ? 4096 : capacity + capacity / 2;
        uint8_t *in = realloc(conn->in, capacity);
        if (in == NULL)
            return false;
        *conn->kept += capacity - conn->in_capacity;
        conn->in = in;
        conn->in_capacity = capacity;
    }
    if (bytes != conn->in + conn->in_len) /* it was written there */
        memcpy(conn->in + conn->in_len, bytes, len);
    conn->in_len += len;
    return true;
}

void conn_used(struct conn *conn, size_t used)
{
    if (used > 0 && used < conn->in_len)
        memmove(conn->in, conn->in + used, conn->in_len - used);
    conn->in_len -= used;
}

void conn_drop_input(struct conn *conn)
{
    *conn->kept -= conn->in_capacity;
    free(conn->in);
    conn->in = NULL;
    conn->in_len = conn->in_capacity = 0;
}

void conn_input(struct conn *conn, const uint8_t *bytes, size_t len)
{
    conn->protocol->input(conn, bytes, len);
}

void conn_resume(struct conn *conn)
{
    conn->blocked = false;
    conn->protocol->resume(conn);
}

/* ---- life ---- */

struct conn *conn_new(struct loop *loop, int fd, const struct protocol *protocol,
                      const struct transport *transport)
{
    struct conn *conn = calloc(1, protocol->bytes);
    if (conn == NULL)
        return NULL;
    conn->loop = loop;
    conn->protocol = protocol;
    conn->transport = transport;
    conn->fd = fd;
    conn->since_ms = loop->now_ms;
    if (transport->opened != NULL && !transport->opened(conn)) {
        free(conn);
        return NULL;
    }
    protocol->opened(conn);
    return conn;
}

void conn_free(struct conn *conn)
{
    conn->protocol->freed(conn);
    if (conn->transport->freed != NULL)
        conn->transport->freed(conn);
    outputs_free(conn->out_first);
    conn_drop_input(conn);
    free(conn);
}

void conn_close(struct conn *conn)
{
    if (conn->closed)
        return;
    conn->closed = true;
    conn->protocol->closed(conn);
    struct loop *loop = conn->loop;
    conn->next_closing = loop->closing;
    loop->closing = conn;
    conn->transport->close(conn);
}

void conn_shutdown(struct conn *conn) { conn->transport->shutdown(conn); }

uint64_t conn_id(const struct conn *conn)
{
    return (uint64_t)(conn->generation & 0xfffff) << 20 | conn->index;
}

/* ---- turns ---- */

void conn_mark_dirty(struct conn *conn)
{
    struct loop *loop = conn->loop;
    if (conn->dirty)
        return;
    conn->dirty = true;
    conn->next_dirty = NULL;
    if (loop->dirty == NULL)
        loop->dirty = conn;
    else
        loop->dirty_last->next_dirty = conn;
    loop->dirty_last = conn;
}
