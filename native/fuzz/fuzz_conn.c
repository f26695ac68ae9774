/* Fuzzes a connection: requests of a client, frames of a sibling or of a replica, in pieces of any
 * size, with answers in between. Whatever the bytes: nothing is read beyond them, and when the
 * connection is gone all that it held is given back. The first byte chooses the kind and the size
 * of pieces. */
#include "fuzz_codec.h"
#include "broker/reactor.h"
#include "log/group_build.h"

static void no_listen(struct net *net, struct listener *listener) {}
static void no_conn(struct net *net, struct conn *conn) {}
static void no_send(struct net *net, struct conn *conn, const void *bytes, size_t len) {}
static void no_write(struct net *net, struct write *write, const void *bytes, size_t len,
                     uint64_t offset)
{
}

static struct net no_net = {.name = "none", .listen = no_listen, .adopt = no_conn,
                            .recv_start = no_conn, .recv_stop = no_conn, .send = no_send,
                            .close = no_conn, .write = no_write};
static struct reactor *reactor;
static struct conn *table[4];

static void start(void)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 1u << 20,
        .workers = 2, .slices = 8, .slice_last = 3, .connections_max = 10,
        .range_start = INT64_MIN, .auto_create = true, .engine = 2};
    const char *error;
    reactor = reactor_new(&options, &error);
    REQUIRE(reactor != NULL);
    reactor->loop.net->free(reactor->loop.net);
    reactor->loop.net = &no_net;
    reactor->log->open = true;
    reactor->loop.table = table;
    reactor->loop.table_used = reactor->loop.table_capacity = 4;
    REQUIRE(reactor_set_route(reactor, 4, 4, 1, "127.0.0.1:9301") == 0);
}

static struct conn *connect_one(uint32_t index, const struct protocol *protocol)
{
    static uint32_t generation;
    struct conn *conn = conn_new(&reactor->loop, -1, protocol, &plain_transport);
    REQUIRE(conn != NULL);
    if (protocol == &replica_protocol)
        replica_of(conn)->frames = frames_new(1u << 20);
    conn->index = index;
    conn->generation = ++generation;
    return table[index] = conn;
}

/* All that waits is stable, and all that was sent is taken. */
static void answer_all(struct conn *conn)
{
    struct run *run = reactor->log->queue;
    reactor->log->queue = NULL;
    reactor->log->queue_end = &reactor->log->queue;
    reactor->log->queued_bytes = 0;
    while (run != NULL) {
        struct run *next = run->next;
        REQUIRE(run_bound(run) <= log_run_bound_max(reactor->log));
        reactor->log->stable(reactor, run);
        run_free(run);
        run = next;
    }
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        free(reactor->upcalls[i].head);
        if (reactor->upcalls[i].body != NULL)
            body_release(reactor->upcalls[i].body);
    }
    reactor->upcall_count = 0;
    outputs_free(conn->out_first);
    if (conn->unsent != NULL && !conn->closed)
        *conn->unsent -= conn->out_bytes;
    conn->out_first = conn->out_last = NULL;
    conn->out_bytes = 0;
    if (!conn->closed && conn->in_len > 0) {
        conn->blocked = conn->stopped = false;
        conn_resume(conn);
    }
}

static void stop(struct conn *conn, struct conn *peer)
{
    conn_close(conn);
    conn_close(peer);
    answer_all(conn);
    reactor->loop.dirty = reactor->loop.closing = NULL;
    conn_free(conn);
    conn_free(peer);
    table[0] = table[1] = NULL;
    free(reactor->calls);
    reactor->calls = NULL;
    reactor->call_capacity = 0;
    reactor->call_free = UINT32_MAX;
    REQUIRE(reactor->body_bytes == 0 && reactor->peer_out_bytes == 0);
    REQUIRE(reactor->peer_back_bytes == 0);
    REQUIRE(reactor->control_bytes == 0 && reactor->control_open == 0);
    if (reactor->shard->topic_count > 100) {
        shard_free(reactor->shard);
        reactor->shard = reactor->log->shard = shard_new(0, 4);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0)
        return 0;
    if (reactor == NULL)
        start();
    uint8_t how = data[0];
    static const struct protocol *const kinds[] = {&client_protocol, &peer_protocol,
                                                   &replica_protocol, &peer_protocol};
    struct conn *conn = connect_one(0, kinds[how & 3]);
    struct conn *peer = connect_one(1, &peer_protocol);
    peer_of(peer)->outgoing = true;
    peer_of(peer)->peer = 1;
    peer->unsent = &reactor->peer_out_bytes;
    reactor->peers[1] = peer;
    if (conn->protocol == &peer_protocol && (how & 2) != 0) {
        peer_of(conn)->outgoing = true;
        conn->unsent = &reactor->peer_out_bytes;
    }
    size_t step = how >> 2 ? (size_t)(how >> 2) * 7 : len;
    uint8_t *copy = copy_of(data + 1, len - 1);
    for (size_t at = 0; at + 1 < len && !conn->closed; at += step) {
        size_t piece = len - 1 - at < step ? len - 1 - at : step;
        conn_input(conn, copy + at, piece);
        if (at / step % 3 == 0 && !conn->closed)
            answer_all(conn);
    }
    free(copy);
    stop(conn, peer);
    return 0;
}
