/* Fuzzes TLS between brokers: records of any content and length instead of a handshake, at either
 * end, and a connection of the loop that goes on with a good session and hears anything. Whatever
 * the bytes: nothing is read beyond them, nobody is believed, and all that it held is given back.
 * The first byte chooses. */
#include "fuzz_codec.h"
#include "broker/handoff_in.h"
#include "broker/intake.h"
#include "broker/reactor.h"
#include "loop/seal.h"
#include "tests/tls_testing.h"

static struct {
    const uint8_t *bytes;
    size_t len;
} sending;

static void no_conn(struct net *net, struct conn *conn) {}
static void no_write(struct net *net, struct write *write, const void *bytes, size_t len,
                     uint64_t offset)
{
}

static void take(struct net *net, struct conn *conn, const void *bytes, size_t len)
{
    REQUIRE(sending.len == 0 && len > 0);
    sending.bytes = bytes;
    sending.len = len;
}

static void stop_receiving(struct net *net, struct conn *conn) { conn->receiving = false; }

static struct net a_net = {.name = "none", .adopt = no_conn, .recv_start = no_conn,
                           .recv_stop = stop_receiving, .send = take, .close = no_conn,
                           .write = no_write};
static struct reactor *reactor;
static struct made authority, broker;
static SSL_CTX *context;

static void start(void)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 1u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 3, .peers = 3,
        .connections_max = 10, .range_start = INT64_MIN, .engine = 2};
    const char *error;
    char why[TLS_WHY_BYTES];
    make_certificate(&authority, NULL, 30);
    make_named(&broker, &authority, 30, "URI:barco:x/0", "serverAuth,clientAuth");
    struct tls_options tls = options_of(&broker, 1);
    tls.client_ca = authority.certificate_pem;
    tls.client_ca_len = authority.certificate_len;
    reactor = reactor_new(&options, &error);
    REQUIRE(reactor != NULL && (context = seal_context(&tls, why)) != NULL);
    reactor->loop.net->free(reactor->loop.net);
    reactor->loop.net = &a_net;
}

static struct seal *new_seal(bool client)
{
    struct seal *seal = seal_new(context, client, (const uint8_t *)"g", 1);
    REQUIRE(seal != NULL);
    return seal;
}

static void forget_unsent(struct seal *seal)
{
    size_t len;
    seal_unsent(seal, &len);
    REQUIRE(len <= PIECE_BYTES_MAX);
    seal_sent(seal, len);
}

/* Each record as long as two bytes of the input say. */
static void records_to(struct seal *seal, const uint8_t *bytes, size_t len)
{
    char why[TLS_WHY_BYTES];
    while (len > 2 && !seal->failed) {
        size_t record = (size_t)bytes[0] << 8 | bytes[1];
        record = record < len - 2 ? record : len - 2;
        uint8_t *copy = copy_of(bytes + 2, record);
        seal_shake(seal, copy, record, why);
        free(copy);
        REQUIRE(!seal->established); /* it would need a signature of the authority */
        forget_unsent(seal);
        bytes += 2 + record;
        len -= 2 + record;
    }
}

static void pass(struct seal *from, struct seal *to)
{
    char why[TLS_WHY_BYTES];
    size_t len, at = 0;
    const uint8_t *said = seal_unsent(from, &len);
    uint8_t *bytes = copy_of(said, len);
    seal_sent(from, len);
    while (at < len) {
        const size_t record = 5 + ((size_t)bytes[at + 3] << 8 | bytes[at + 4]);
        REQUIRE(seal_shake(to, bytes + at, record, why));
        at += record;
    }
    free(bytes);
}

static struct seal *other_end(struct seal *client)
{
    char why[TLS_WHY_BYTES];
    struct seal *server = new_seal(false);
    REQUIRE(seal_shake(client, NULL, 0, why));
    pass(client, server);
    pass(server, client);
    pass(client, server);
    REQUIRE(client->established && server->established);
    return server;
}

static void hear(struct conn *conn, const uint8_t *bytes, size_t len, size_t step)
{
    for (size_t at = 0; at < len && !conn->closed; at += step) {
        const size_t piece = len - at < step ? len - at : step;
        uint8_t *copy = copy_of(bytes + at, piece);
        transport_received(conn, copy, piece);
        free(copy);
        loop_clock(&reactor->loop);
        loop_tend(&reactor->loop);
        if (sending.len > 0) {
            const size_t sent = sending.len < 100 ? sending.len : 100;
            sending.len = 0;
            transport_sent(conn, (int64_t)sent);
        }
    }
}

/* What the other end says within good records. */
static void hear_sealed(struct conn *conn, struct seal *from, const uint8_t *bytes, size_t len,
                        size_t step)
{
    for (size_t at = 0; at < len && !conn->closed; at += step) {
        const size_t piece = len - at < step ? len - at : step;
        size_t sealed;
        from->records_left = bytes[at] == 0xff ? 0 : 100; /* and other keys in between */
        REQUIRE(tls_bio_seal(from->ssl, &from->bio, bytes + at, piece, &from->records_left));
        const uint8_t *said = seal_unsent(from, &sealed);
        hear(conn, said, sealed, 1 + step * 3);
        forget_unsent(from);
    }
}

static void stop(struct conn *conn)
{
    transport_receive_ended(conn, 0);
    conn_close(conn);
    sending.len = 0;
    conn->sending = false;
    conn->operations = 0;
    loop_reap(&reactor->loop);
    REQUIRE(reactor->loop.conn_count == 0);
    for (uint32_t i = 0; i < reactor->upcall_count; i++)
        free(reactor->upcalls[i].head);
    reactor->upcall_count = 0;
    REQUIRE(reactor->input_bytes == 0 && reactor->partial_bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0)
        return 0;
    if (reactor == NULL)
        start();
    const uint8_t how = data[0];
    struct seal *seal = new_seal(how & 1), *other = NULL;
    if ((how & 2) == 0) {
        char why[TLS_WHY_BYTES];
        if (how & 1)
            REQUIRE(seal_shake(seal, NULL, 0, why));
        records_to(seal, data + 1, len - 1);
    } else {
        if ((how & 1) == 0) {
            seal_drop(seal);
            seal = new_seal(true);
        }
        other = other_end(seal);
        const size_t step = how >> 3 ? (size_t)(how >> 3) * 61 : 5000;
        const struct protocol *protocol = how & 1 ? &peer_protocol : &replica_protocol;
        struct conn *conn;
        if (protocol == &peer_protocol) {
            REQUIRE(reactor_adopt_peer(reactor, -1, 2, seal) == 0);
            conn = reactor->loop.conns;
        } else {
            REQUIRE((conn = reactor_adopt_replica(reactor, -1, 1u << 16, seal)) != NULL);
        }
        if (how & 4)
            hear_sealed(conn, other, data + 1, len - 1, step);
        else
            hear(conn, data + 1, len - 1, step);
        stop(conn);
    }
    seal_drop(other);
    seal_drop(seal);
    return 0;
}
