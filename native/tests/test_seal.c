/* TLS between two brokers: who is believed, what is sealed past the loop, and a connection of the
 * loop that goes on with a session. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "broker/handoff_in.h"
#include "broker/intake.h"
#include "broker/reactor.h"
#include "codec_testing.h"
#include "loop/loop.h"
#include "loop/seal.h"
#include "tests/tls_testing.h"

#define TURNS_MAX 20000
#define BOTH "serverAuth,clientAuth"
#define CLUSTER "barco:0123456789abcdef0123456789abcdef"

static struct made authority, other_authority;
static char why[2][TLS_WHY_BYTES]; /* of the client, of the server */
static uint64_t seed = 20261126;

static SSL_CTX *context_of(const struct made *made, const struct made *believes)
{
    struct tls_options options = options_of(made, 1);
    options.client_ca = believes->certificate_pem;
    options.client_ca_len = believes->certificate_len;
    SSL_CTX *context = seal_context(&options, why[0]);
    CHECK(context != NULL);
    return context;
}

static struct seal *seal_named(SSL_CTX *context, bool client, const char *name)
{
    struct seal *seal = seal_new(context, client, (const uint8_t *)name, strlen(name));
    CHECK(seal != NULL);
    return seal;
}

/* What one has said goes to the other, a record at a time. False: one of them is at its end. */
static bool pass(struct seal *from, struct seal *to, char *says)
{
    size_t len, at = 0;
    const uint8_t *said = seal_unsent(from, &len);
    uint8_t *bytes = exact_copy(said, len);
    seal_sent(from, len);
    bool good = true;
    while (at < len && good && !to->established && !to->failed) {
        CHECK(len - at >= 5);
        const size_t record = 5 + ((size_t)bytes[at + 3] << 8 | bytes[at + 4]);
        CHECK(record <= len - at);
        uint8_t *copy = exact_copy(bytes + at, record);
        good = seal_shake(to, copy, record, says);
        free(copy);
        at += record;
    }
    free(bytes);
    return good;
}

/* Ends: both are done, or one has failed and the other has heard of it, or waits. */
static bool shake(struct seal *client, struct seal *server)
{
    memset(why, 0, sizeof why);
    bool good = seal_shake(client, NULL, 0, why[0]);
    for (int n = 0; n < 8 && good; n++)
        good = pass(client, server, why[1]) && pass(server, client, why[0]);
    if (!good) { /* the last word */
        pass(client, server, why[1]);
        pass(server, client, why[0]);
    }
    return client->established && server->established;
}

struct two {
    struct seal *client, *server;
};

/* A connection of these two; the broker at its server's end has the first of them. */
static struct two meet(const struct made *server, const struct made *client, const char *names[2])
{
    SSL_CTX *one = context_of(server, &authority), *two = context_of(client, &authority);
    struct two met = {seal_named(two, true, names[1]), seal_named(one, false, names[0])};
    SSL_CTX_free(one); /* the sessions keep them */
    SSL_CTX_free(two);
    return met;
}

static void part(struct two *met)
{
    seal_drop(met->client);
    seal_drop(met->server);
}

static bool believe(const struct made *server, const struct made *client)
{
    const char *names[2] = {"one greeting", "one greeting"};
    struct two met = meet(server, client, names);
    const bool both = shake(met.client, met.server);
    part(&met);
    return both;
}

static bool says(const struct seal *seal, const char *wanted)
{
    char identity[SEAL_IDENTITY_BYTES_MAX];
    const size_t len = seal_identity(seal, identity);
    return len == strlen(wanted) && memcmp(identity, wanted, len) == 0;
}

static struct made broker(const struct made *issuer, const char *names, const char *purposes,
                          long days)
{
    struct made made;
    make_named(&made, issuer, days, names, purposes);
    return made;
}

/* ---- who is believed ---- */

static void test_who_is_believed(void)
{
    struct made zero = broker(&authority, "DNS:a.example,URI:" CLUSTER "/0", BOTH, 30);
    struct made one = broker(&authority, "URI:" CLUSTER "/1,URI:https://x.example", BOTH, 30);
    struct made stranger = broker(&other_authority, "URI:" CLUSTER "/1", BOTH, 30);
    struct made expired = broker(&authority, "URI:" CLUSTER "/1", BOTH, -1);
    struct made serving = broker(&authority, "URI:" CLUSTER "/1", "serverAuth", 30);
    struct made calling = broker(&authority, "URI:" CLUSTER "/1", "clientAuth", 30);
    const char *same[2] = {"one greeting", "one greeting"}, *other[2] = {"this", "that"};
    struct two met = meet(&zero, &one, same);
    CHECK(shake(met.client, met.server));
    CHECK(says(met.client, CLUSTER "/0") && says(met.server, CLUSTER "/1"));
    part(&met);
    CHECK(!believe(&zero, &stranger) && strstr(why[1], "signature failure") != NULL);
    CHECK(!believe(&stranger, &zero) && strstr(why[0], "signature failure") != NULL);
    CHECK(!believe(&zero, &expired) && strstr(why[1], "has expired") != NULL);
    CHECK(!believe(&expired, &zero) && strstr(why[0], "has expired") != NULL);
    CHECK(strstr(why[1], "alert certificate expired") != NULL); /* it hears why */
    CHECK(!believe(&zero, &serving) && strstr(why[1], "purpose") != NULL);
    CHECK(!believe(&calling, &zero) && strstr(why[0], "purpose") != NULL);
    met = meet(&zero, &one, other); /* of another greeting */
    CHECK(!shake(met.client, met.server) && strstr(why[0], "application protocol") != NULL);
    part(&met);
    struct made *all[] = {&zero, &one, &stranger, &expired, &serving, &calling};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        made_free(all[i]);
}

static void test_identities_that_are_none(void)
{
    static char long_one[300] = "URI:" CLUSTER "/";
    static const char *const names[] = {
        NULL, "DNS:a.example", "URI:" CLUSTER "/1,URI:" CLUSTER "/2", "URI:BARCO:x/1",
        "URI:" CLUSTER "/1 2", long_one,
    };
    struct made zero = broker(&authority, "URI:" CLUSTER "/0", BOTH, 30);
    memset(long_one + strlen(long_one), '1', 200);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *same[2] = {"g", "g"};
        struct made odd = broker(&authority, names[i], BOTH, 30);
        struct two met = meet(&zero, &odd, same);
        CHECK(shake(met.client, met.server));
        CHECK(says(met.server, "") && says(met.client, CLUSTER "/0"));
        part(&met);
        made_free(&odd);
    }
    made_free(&zero);
}

/* Ends that are not ours: OpenSSL's own, with what is asked of it. */
static bool shakes_with(struct seal *ours, SSL *theirs)
{
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    uint8_t bytes[20000];
    SSL_set_bio(theirs, in, out);
    bool good = true;
    for (int n = 0; n < 12 && good && !ours->established; n++) {
        SSL_do_handshake(theirs);
        for (int head; good && (head = BIO_read(out, bytes, 5)) == 5;) {
            const int body = bytes[3] << 8 | bytes[4];
            CHECK(BIO_read(out, bytes + 5, body) == body);
            good = !ours->established && seal_shake(ours, bytes, 5 + (size_t)body, why[0]);
        }
        size_t len;
        const uint8_t *said = seal_unsent(ours, &len);
        if (len > 0)
            BIO_write(in, said, (int)len);
        seal_sent(ours, len);
    }
    return good && ours->established;
}

static void test_others(void)
{
    struct made zero = broker(&authority, "URI:" CLUSTER "/0", BOTH, 30);
    SSL_CTX *ours = context_of(&zero, &authority), *theirs = SSL_CTX_new(TLS_client_method());
    static const uint8_t name[] = "\x01g", wrong[] = "\x01h";
    for (int kind = 0; kind < 5; kind++) {
        struct seal *seal = seal_named(ours, false, "g");
        SSL *ssl = SSL_new(theirs);
        SSL_set_connect_state(ssl);
        if (kind != 0) /* without a certificate */
            CHECK(SSL_use_certificate(ssl, zero.certificate) == 1 &&
                  SSL_use_PrivateKey(ssl, zero.key) == 1);
        if (kind == 1) /* an older version */
            SSL_set_max_proto_version(ssl, TLS1_2_VERSION);
        if (kind == 2)
            SSL_set_alpn_protos(ssl, wrong, 2);
        else if (kind != 3) /* none */
            SSL_set_alpn_protos(ssl, name, 2);
        CHECK(shakes_with(seal, ssl) == (kind == 4));
        CHECK(seal->failed == (kind != 4));
        SSL_free(ssl);
        seal_drop(seal);
    }
    struct seal *seal = seal_named(ours, false, "g"); /* who speaks plain */
    CHECK(!seal_shake(seal, (const uint8_t *)"\x10\0\0\0\x84 frame", 12, why[0]));
    seal_drop(seal);
    seal = seal_named(ours, true, "g");
    CHECK(seal_shake(seal, NULL, 0, why[0]));
    CHECK(!seal_shake(seal, (const uint8_t *)"\x10\0\0\0\x84 frame", 12, why[0]));
    CHECK(seal_or_send(seal, 0, &(struct msghdr){0}) == -ENOTCONN); /* and nothing goes out */
    seal_drop(seal);
    struct tls_options no_ca = options_of(&zero, 1);
    CHECK(seal_context(&no_ca, why[0]) == NULL && strstr(why[0], "authority") != NULL);
    SSL_CTX_free(theirs);
    SSL_CTX_free(ours);
    made_free(&zero);
}

/* What comes behind the last word of a handshake is no part of it, and nobody has it yet. */
static void test_more_than_the_handshake(void)
{
    struct made zero = broker(&authority, "URI:" CLUSTER "/0", BOTH, 30);
    const char *same[2] = {"g", "g"};
    struct two met = meet(&zero, &zero, same);
    size_t len;
    CHECK(seal_shake(met.client, NULL, 0, why[0]) && pass(met.client, met.server, why[1]));
    const uint8_t *flight = seal_unsent(met.server, &len);
    uint8_t *more = malloc(len + 6);
    memcpy(more, flight, len);
    memcpy(more + len, "\x17\x03\x03\0\1x", 6);
    CHECK(!seal_shake(met.client, more, len + 6, why[0]) && strstr(why[0], "more came") != NULL);
    CHECK(!met.client->established);
    free(more);
    part(&met);
    made_free(&zero);
}

/* ---- what is written past the loop ---- */

static struct two believed(void)
{
    static struct made zero, one;
    const char *same[2] = {"g", "g"};
    if (zero.key == NULL) {
        zero = broker(&authority, "URI:" CLUSTER "/0", BOTH, 30);
        one = broker(&authority, "URI:" CLUSTER "/1", BOTH, 30);
    }
    struct two met = meet(&zero, &one, same);
    CHECK(shake(met.client, met.server));
    return met;
}

static void little_room(int fd)
{
    const int little = 4096;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
}

/* What has come so far is read into `out`. */
static size_t read_sealed(struct seal *seal, int fd, uint8_t *out, size_t capacity)
{
    uint8_t bytes[3000];
    size_t have = 0;
    const ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0)
        return 0;
    seal->bio.in = bytes;
    seal->bio.in_len = (size_t)got;
    for (int len; (len = SSL_read(seal->ssl, out + have, (int)(capacity - have))) > 0;)
        have += (size_t)len;
    CHECK(seal->bio.in_len == 0);
    return have;
}

static int updates;

static void count_updates(int writing, int version, int kind, const void *bytes, size_t len,
                          SSL *ssl, void *owner)
{
    updates += !writing && kind == SSL3_RT_HANDSHAKE && len > 0 &&
               *(const uint8_t *)bytes == SSL3_MT_KEY_UPDATE;
}

static void test_what_is_sealed_past_the_loop(void)
{
    static uint8_t said[300000], heard[300000];
    static const size_t heads[] = {0, 1, 150, 16384, 70000}, bodies[] = {0, 1, 1000, 16300, 200000};
    int ends[2];
    struct two met = believed();
    for (size_t i = 0; i < sizeof said; i++)
        said[i] = (uint8_t)random_next(&seed);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    SSL_set_msg_callback(met.client->ssl, count_updates); /* OpenSSL reads what was sealed here */
    little_room(ends[0]);
    for (unsigned i = 0; i < 25; i++) {
        const size_t head = heads[i / 5], all = head + bodies[i % 5];
        size_t taken = 0, have = 0;
        if (i == 12) /* other keys within it */
            met.server->records_left = 3;
        CHECK(i > 12 || updates == 0);
        for (int n = 0; have < all || taken < all; n++) {
            CHECK(n < TURNS_MAX);
            const size_t first = taken < head ? taken : head;
            struct iovec parts[2] = {{said + first, head - first},
                                     {said + head + (taken - first), all - head - (taken - first)}};
            const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
            const ssize_t more = seal_or_send(met.server, ends[0], &message);
            CHECK(more >= 0);
            taken += (size_t)more;
            have += read_sealed(met.client, ends[1], heard + have, sizeof heard - have);
        }
        CHECK(have == all && memcmp(said, heard, all) == 0);
        while (seal_flush(met.server, ends[0]) != 1)
            CHECK(read_sealed(met.client, ends[1], heard, sizeof heard) == 0);
    }
    CHECK(updates == 1 && met.server->records_left > KEY_RECORDS_MAX / 2);
    CHECK(met.server->bio.next.capacity <= 16384); /* nothing large is kept */
    close(ends[1]);
    struct iovec part_ = {said, 100};
    const struct msghdr message = {.msg_iov = &part_, .msg_iovlen = 1};
    CHECK(seal_or_send(met.server, ends[0], &message) == -EPIPE);
    close(ends[0]);
    part(&met);
}

/* A socket that keeps what one call has sent together. */
static void test_one_call_for_a_group_and_its_head(void)
{
    static uint8_t said[200000], heard[200000];
    int ends[2];
    struct two met = believed();
    const int room = 1 << 20;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    const size_t heads[] = {60, 60, 20000, 60}, bodies[] = {40000, 65000, 45000, 180000};
    const int calls[] = {1, 1, 1, 3};
    for (size_t i = 0; i < 4; i++) {
        struct iovec parts[2] = {{said, heads[i]}, {said + heads[i], bodies[i]}};
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        const ssize_t all = (ssize_t)(heads[i] + bodies[i]);
        CHECK(seal_or_send(met.server, ends[0], &message) == all);
        CHECK(seal_flush(met.server, ends[0]) == 1);
        int got = 0;
        while (read(ends[1], heard, sizeof heard) > 0)
            got++;
        CHECK(got == calls[i]);
    }
    close(ends[0]);
    close(ends[1]);
    part(&met);
}

static void test_plain_as_it_was(void)
{
    int ends[2];
    char heard[8];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    struct iovec parts[2] = {{"ab", 2}, {"cde", 3}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    CHECK(seal_or_send(NULL, ends[0], &message) == 5);
    CHECK(read(ends[1], heard, sizeof heard) == 5 && memcmp(heard, "abcde", 5) == 0);
    while (seal_or_send(NULL, ends[0], &message) == 5) /* until it is full */
        ;
    CHECK(seal_or_send(NULL, ends[0], &message) == 0);
    close(ends[1]);
    CHECK(seal_or_send(NULL, ends[0], &message) == -EPIPE);
    close(ends[0]);
}

/* ---- connections of the loop ---- */

static struct reactor *reactor;

static void start(int engine)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .session = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 4u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 3, .peers = 3,
        .connections_max = 10, .range_start = INT64_MIN, .engine = engine};
    const char *error;
    reactor = reactor_new(&options, &error);
    CHECK(reactor != NULL);
}

static void turn(void) { reactor_run(reactor, 1000000); }

static void test_a_replica_speaks_by_a_session(void)
{
    static uint8_t group[150000], told[FRAME_HEAD_BYTES + 3] = {3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b'};
    int ends[2];
    struct two met = believed();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    const struct conn *conn = reactor_adopt_replica(reactor, ends[0], sizeof group, met.client);
    CHECK(conn != NULL && met.client->ssl == NULL && conn->transport == &tls_transport);
    const uint64_t id = conn_id(conn);
    const uint32_t len = sizeof group;
    memcpy(told + 4, &len, 4);
    for (size_t i = 0; i < sizeof group; i++)
        group[i] = (uint8_t)random_next(&seed);
    struct iovec parts[2] = {{told, sizeof told}, {group, sizeof group}};
    size_t taken = 0;
    for (int n = 0; reactor->upcall_count == 0; n++) {
        CHECK(n < TURNS_MAX);
        struct iovec left[2] = {parts[0], parts[1]};
        const size_t first = taken < sizeof told ? taken : sizeof told;
        left[0].iov_base = told + first;
        left[0].iov_len -= first;
        left[1].iov_base = group + (taken - first);
        left[1].iov_len -= taken - first;
        const struct msghdr message = {.msg_iov = left, .msg_iovlen = 2};
        const ssize_t more = seal_or_send(met.server, ends[1], &message);
        CHECK(more >= 0);
        taken += (size_t)more;
        turn();
    }
    struct upcall *up = &reactor->upcalls[0];
    CHECK(up->kind == UPCALL_FRAME && up->head_len == 3 && up->bytes == sizeof group);
    CHECK(memcmp(up->head + 3, group, sizeof group) == 0);
    free(up->head);
    reactor->upcall_count = 0;
    CHECK(write(ends[1], told, sizeof told) == sizeof told); /* plain, past the session */
    for (int n = 0; loop_conn(&reactor->loop, id) != NULL; n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
    CHECK(reactor->upcall_count == 1 && reactor->upcalls[0].kind == UPCALL_REPLICA_CLOSED);
    reactor->upcall_count = 0;
    CHECK(tls_figures(&reactor->loop) == NULL); /* no client's */
    const struct tls_options clients = options_of(&other_authority, 1);
    CHECK(tls_set(&reactor->loop, &clients, why[0]));
    CHECK(tls_figures(&reactor->loop)->failed == 0 && tls_figures(&reactor->loop)->cut == 0);
    close(ends[1]);
    part(&met);
}

/* A call in one process, its answer in the other: both ends are the loop's. */
static void test_hand_off_both_ways(void)
{
    int ends[2];
    struct two met = believed();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    CHECK(reactor_attach_peer(reactor, 1, ends[0], met.server) == 0);
    CHECK(reactor_adopt_peer(reactor, ends[1], 2, met.client) == 0);
    CHECK(met.server->ssl == NULL && met.client->ssl == NULL);
    for (int n = 0; n < 10; n++)
        turn();
    CHECK(reactor->peers[1] != NULL && reactor->upcall_count == 0);
    struct conn *conn = reactor->peers[1];
    CHECK(conn->wire_bytes == 0); /* idle, it has no piece */
    static uint8_t said[SEALED_BETWEEN];
    conn->sending = true; /* as loop_send() has it; not a turn, so that nothing is sent */
    conn->transport->send(conn, said, sizeof said);
    CHECK(conn->wire_bytes > sizeof said && conn->wire_bytes < sizeof said + OWN_BYTES_MAX);
    conn->sending = false;
    conn_close(conn);
    for (int n = 0; reactor->loop.conn_count > 0; n++) { /* the other hears that it ended */
        CHECK(n < TURNS_MAX);
        turn();
    }
    reactor->upcall_count = 0;
    part(&met);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    make_certificate(&authority, NULL, 30);
    make_certificate(&other_authority, NULL, 30);
    test_who_is_believed();
    test_identities_that_are_none();
    test_others();
    test_more_than_the_handshake();
    test_what_is_sealed_past_the_loop();
    test_one_call_for_a_group_and_its_head();
    test_plain_as_it_was();
    for (int engine = 1; engine <= 2; engine++) {
        const char *reason = NULL;
        struct loop loop = {0};
        struct net *net = engine == 1 ? net_uring_new(&loop, &reason) : NULL;
        if (engine == 1 && net == NULL) {
            fprintf(stderr, "only epoll: %s\n", reason);
            continue;
        }
        if (net != NULL)
            net->free(net);
        start(engine);
        test_a_replica_speaks_by_a_session();
        test_hand_off_both_ways();
        reactor_free(reactor);
    }
    made_free(&authority);
    made_free(&other_authority);
    return 0;
}
