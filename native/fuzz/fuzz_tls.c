/* Fuzzes the transport TLS with a worker's client protocol behind it: bytes instead of a handshake,
 * bytes after a good one, what a peer says within good records, and records of any kind, any length
 * and any filling that are sealed as they should be; in pieces of any size, with sends that take a
 * part at a time. Whatever the bytes: nothing is read beyond them, and when the connection is gone
 * all that it held is given back. The first byte chooses. */
#include <openssl/ssl.h>

#include "fuzz_codec.h"
#include "broker/reactor.h"
#include "loop/record.h"
#include "loop/tls.h"
#include "tests/tls_testing.h"

#define SHAKES_MAX 32
#define FILLED_MAX 4096u

static struct {
    const uint8_t *bytes;
    size_t len;
} sending; /* what the transport has given to the engine */

static void no_listen(struct net *net, struct listener *listener) {}
static void no_conn(struct net *net, struct conn *conn) {}
static void no_write(struct net *net, struct write *write, const void *bytes, size_t len,
                     uint64_t offset)
{
}

static void take(struct net *net, struct conn *conn, const void *bytes, size_t len)
{
    REQUIRE(sending.len == 0 && len > 0); /* one at a time */
    sending.bytes = bytes;
    sending.len = len;
}

static void stop_receiving(struct net *net, struct conn *conn) { conn->receiving = false; }

static struct net a_net = {.name = "none", .listen = no_listen, .adopt = no_conn,
                           .recv_start = no_conn, .recv_stop = stop_receiving, .send = take,
                           .close = no_conn, .write = no_write};
static struct reactor *reactor;
static struct conn *table[4];
static struct made authority;
static SSL_CTX *others;
static struct record_keys theirs; /* of the client whose records are not OpenSSL's */

static void hear_secret(const SSL *ssl, const char *line)
{
    static const char client[] = "CLIENT_TRAFFIC_SECRET_0 ";
    if (strncmp(line, client, sizeof client - 1) == 0)
        REQUIRE(record_secret(&theirs, strrchr(line, ' ') + 1));
}

static void start(void)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 1u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 1, .connections_max = 10,
        .range_start = INT64_MIN, .auto_create = true, .engine = 2};
    const char *error;
    char why[TLS_WHY_BYTES];
    make_certificate(&authority, NULL, 30);
    const struct tls_options tls = options_of(&authority, TLS_HANDSHAKES_PER_S_MAX);
    reactor = reactor_new(&options, &error);
    REQUIRE(reactor != NULL && tls_set(&reactor->loop, &tls, why));
    reactor->loop.net->free(reactor->loop.net);
    reactor->loop.net = &a_net;
    reactor->loop.table = table;
    reactor->loop.table_used = reactor->loop.table_capacity = 4;
    REQUIRE((others = SSL_CTX_new(TLS_client_method())) != NULL);
    SSL_CTX_set_keylog_callback(others, hear_secret);
}

/* Some of what is being sent goes to the other end, if there is one. */
static void send_some(struct conn *conn, BIO *to, size_t most)
{
    if (sending.len == 0)
        return;
    const size_t len = sending.len < most ? sending.len : most;
    if (to != NULL)
        BIO_write(to, sending.bytes, (int)len);
    sending.len = 0; /* the rest is asked for again */
    transport_sent(conn, (int64_t)len);
}

static void give(struct conn *conn, const uint8_t *bytes, size_t len, size_t step)
{
    for (size_t at = 0; at < len && !conn->closed; at += step) {
        const size_t piece = len - at < step ? len - at : step;
        uint8_t *copy = copy_of(bytes + at, piece);
        transport_received(conn, copy, piece);
        free(copy);
        loop_clock(&reactor->loop);
        tls_tend(&reactor->loop);
        loop_tend(&reactor->loop);
        send_some(conn, NULL, 100);
    }
}

static void pass_on(struct conn *conn, BIO *from)
{
    uint8_t bytes[4096];
    for (int len; !conn->closed && (len = BIO_read(from, bytes, sizeof bytes)) > 0;)
        transport_received(conn, bytes, (size_t)len);
}

static SSL *shake(struct conn *conn)
{
    SSL *ssl = SSL_new(others);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    REQUIRE(ssl != NULL && in != NULL && out != NULL);
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    for (int n = 0; n < SHAKES_MAX; n++) {
        const bool done = SSL_do_handshake(ssl) == 1;
        loop_clock(&reactor->loop);
        pass_on(conn, out);
        tls_tend(&reactor->loop);
        while (sending.len > 0)
            send_some(conn, in, 700);
        if (done && n > 4)
            return ssl;
    }
    REQUIRE(false);
    return ssl;
}

static void say(struct conn *conn, SSL *ssl, const uint8_t *bytes, size_t len, size_t step)
{
    for (size_t at = 0; at < len && !conn->closed; at += step) {
        const size_t piece = len - at < step ? len - at : step;
        if (bytes[at] == 0xff)
            SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
        if (SSL_write(ssl, bytes + at, (int)piece) != (int)piece)
            return;
        pass_on(conn, SSL_get_wbio(ssl));
        loop_tend(&reactor->loop);
        send_some(conn, NULL, 300);
    }
    SSL_shutdown(ssl);
    pass_on(conn, SSL_get_wbio(ssl));
}

/* Records by the client's keys: of each what it is, how long it is, how it is filled up, and what
 * it says. One that says that other keys follow is believed by both ends. */
static void say_records(struct conn *conn, const SSL *ssl, const uint8_t *bytes, size_t len,
                        size_t step)
{
    static const uint8_t kinds[] = {RECORD_DATA, RECORD_HANDSHAKE, RECORD_DATA, RECORD_ALERT,
                                    RECORD_HANDSHAKE, RECORD_DATA, 0, 24};
    static const uint8_t update[] = {SSL3_MT_KEY_UPDATE, 0, 0, 1, SSL_KEY_UPDATE_REQUESTED};
    static uint8_t inner[RECORD_BYTES], record[RECORD_BYTES + RECORD_ADDED_BYTES];
    REQUIRE(record_begin(&theirs, ssl, true));
    for (size_t at = 0, said; len - at >= 3 && !conn->closed; at += said) {
        const uint8_t what = bytes[at];
        said = (size_t)bytes[at + 1] | (size_t)(bytes[at + 2] & 63) << 8;
        at += 3;
        const bool renews = (what & 0xf8) == 0xf8; /* a good one, whole */
        said = renews || said > len - at ? (renews ? 0 : len - at) : said;
        const size_t filled = (what >> 3) * (FILLED_MAX / 32);
        size_t whole = renews ? sizeof update : said;
        memcpy(inner, renews ? update : bytes + at, whole);
        inner[whole++] = renews ? RECORD_HANDSHAKE : kinds[what & 7];
        for (size_t n = 0; !renews && n < filled && whole < sizeof inner; n++)
            inner[whole++] = 0;
        REQUIRE(whole <= sizeof inner && record_seal(&theirs, 0, inner, whole, record));
        give(conn, record, whole + RECORD_ADDED_BYTES, step);
        if (renews)
            REQUIRE(record_renew(&theirs));
    }
    record_end(&theirs);
}

static void stop(struct conn *conn)
{
    struct run *run = reactor->log->queue;
    reactor->log->queue = NULL;
    reactor->log->queue_end = &reactor->log->queue;
    reactor->log->queued_bytes = 0;
    while (run != NULL) {
        struct run *next = run->next;
        reactor->log->stable(reactor, run);
        run_free(run);
        run = next;
    }
    loop_tend(&reactor->loop);
    for (int n = 0; n < 64 && sending.len > 0; n++)
        send_some(conn, NULL, 20000);
    transport_receive_ended(conn, 0);
    conn_close(conn);
    sending.len = 0;
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        free(reactor->upcalls[i].head);
        if (reactor->upcalls[i].body != NULL)
            body_release(reactor->upcalls[i].body);
    }
    reactor->upcall_count = 0;
    reactor->loop.dirty = reactor->loop.closing = NULL;
    reactor->loop.late_first = reactor->loop.late_last = NULL;
    conn_free(conn);
    table[0] = NULL;
    REQUIRE(reactor->input_bytes == 0 && reactor->body_bytes == 0);
    REQUIRE(tls_figures(&reactor->loop)->under_way == 0);
    if (reactor->shard->topic_count > 100) {
        shard_free(reactor->shard);
        reactor->shard = reactor->log->shard = shard_new(0, 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static uint32_t generation;
    if (len == 0)
        return 0;
    if (reactor == NULL)
        start();
    reactor->log->open = true;
    const uint8_t how = data[0];
    const size_t step = how >> 2 ? (size_t)(how >> 2) * 37 : len;
    struct conn *conn = conn_new(&reactor->loop, -1, &client_protocol, &tls_transport);
    REQUIRE(conn != NULL);
    conn->receiving = true;
    conn->generation = ++generation;
    table[0] = conn;
    SSL *ssl = (how & 3) != 0 ? shake(conn) : NULL;
    if ((how & 3) < 2)
        give(conn, data + 1, len - 1, step);
    else if ((how & 3) == 3)
        say_records(conn, ssl, data + 1, len - 1, step);
    else
        say(conn, ssl, data + 1, len - 1, step);
    SSL_free(ssl);
    stop(conn);
    return 0;
}
