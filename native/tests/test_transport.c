/* The same dialogues over every transport and both engines, through real sockets: whatever
 * lies on the wire, what is said and heard is the same. So nothing goes by the table. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/reactor.h"
#include "loop/source.h"
#include "loop/tls.h"
#include "tests/tls_testing.h"
#include "tests/worker_testing.h"
#include "transport_testing.h"

#define SAID_MAX (256u << 10)
#define QUIET_TURNS 12
#define TURNS_MAX 60000
#define LONG_BYTES 20000u

enum how {
    ALL = 0,
    HALF_CLOSE = 1, /* the other end sends nothing more */
    SOURCE = 2,     /* an answer from where it lies */
    SAYS_BYE = 4,   /* the end is announced, not only there */
};

struct dialogue {
    const char *name;
    const struct protocol *protocol;
    const uint8_t *said;
    size_t len;
    unsigned how;
};

struct transcript {
    uint8_t *bytes;
    size_t len;
    bool ended, bye;
};

static struct reactor *reactor;
static int engine;
static struct made authority;
static SSL_CTX *others; /* of the other ends that speak TLS */

/* ---- the worker ---- */

static void start(void)
{
    reactor = worker_new(engine, &authority);
}

static void stop(void)
{
    worker_free(reactor);
}

/* What Python would be told; of a replica's frames that is what they say. */
static void take_upcalls(struct transcript *t)
{
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        const struct upcall *up = &reactor->upcalls[i];
        if (up->kind == UPCALL_FRAME) {
            CHECK(t->len + up->head_len <= SAID_MAX);
            memcpy(t->bytes + t->len, up->head, up->head_len);
            t->len += up->head_len;
        }
        free(up->head);
        if (reactor->upcalls[i].body != NULL)
            body_release(reactor->upcalls[i].body);
    }
    reactor->upcall_count = 0;
}

/* ---- an answer from memory that somebody else may want ---- */

static uint8_t long_bytes[LONG_BYTES];

struct two_pieces {
    struct msghdr header;
    struct iovec pieces[2];
};

static void fill(const struct source *source, uint32_t sent, uint32_t most, struct msghdr *header)
{
    struct two_pieces *m = (struct two_pieces *)header;
    const uint32_t left = source->len - sent, len = left < most ? left : most, first = len / 3;
    m->header = (struct msghdr){.msg_iov = m->pieces};
    if (first > 0)
        m->pieces[m->header.msg_iovlen++] = (struct iovec){long_bytes + sent, first};
    m->pieces[m->header.msg_iovlen++] = (struct iovec){long_bytes + sent + first, len - first};
}

static struct source long_source = {
    .len = LONG_BYTES, .message_bytes = sizeof(struct two_pieces), .fill = fill};

static void answer_from_source(struct conn *conn)
{
    for (uint32_t i = 0; i < LONG_BYTES; i++)
        long_bytes[i] = (uint8_t)(i * 31 >> 3);
    conn_write_source(&conn->out_first, &conn->out_last, &long_source, NULL, NULL);
    conn->out_bytes += LONG_BYTES;
    conn_mark_dirty(conn);
}

/* ---- the other end ---- */

struct other_end {
    int fd;
    bool sealed;
    SSL *ssl;      /* or NULL */
    uint8_t *wire; /* all that it will send */
    size_t wire_len, wire_sent;
    struct unsealing in;
    unsigned turns;
};

static void prepare(struct other_end *end, const struct dialogue *d)
{
    uint8_t count = 0;
    end->wire = malloc(2 * d->len + 64);
    if (end->ssl != NULL)
        SSL_set_fd(end->ssl, end->fd);
    if (!end->sealed) {
        memcpy(end->wire, d->said, end->wire_len = d->len);
        return;
    }
    end->wire_len = seal(&count, RECORD_HELLO, NULL, 0, end->wire);
    for (size_t at = 0, len; at < d->len; at += len) {
        len = d->len - at < 257 ? d->len - at : 257;
        end->wire_len += seal(&count, RECORD_DATA, d->said + at, len, end->wire + end->wire_len);
    }
    if ((d->how & HALF_CLOSE))
        end->wire_len += seal(&count, RECORD_BYE, NULL, 0, end->wire + end->wire_len);
}

static void say_more(struct other_end *end, const struct dialogue *d)
{
    if (end->wire_sent == end->wire_len)
        return;
    if (end->ssl != NULL) {
        /* Records of 1 byte to 16 KiB. */
        const size_t left = end->wire_len - end->wire_sent, most = 1u << (end->turns++ % 15);
        const int len = SSL_write(end->ssl, end->wire + end->wire_sent,
                                  (int)(left < most ? left : most));
        end->wire_sent += len > 0 ? (size_t)len : 0;
        if (end->wire_sent == end->wire_len && (d->how & HALF_CLOSE)) {
            CHECK(SSL_shutdown(end->ssl) == 0);
            shutdown(end->fd, SHUT_WR);
        }
        return;
    }
    const ssize_t sent = send(end->fd, end->wire + end->wire_sent, end->wire_len - end->wire_sent,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
        end->wire_sent += (size_t)sent;
    if (end->wire_sent == end->wire_len && (d->how & HALF_CLOSE))
        shutdown(end->fd, SHUT_WR);
}

static bool hear_sealed(struct other_end *end, struct transcript *t)
{
    const int got = SSL_read(end->ssl, t->bytes + t->len, (int)(SAID_MAX - t->len));
    t->len += got > 0 ? (size_t)got : 0;
    t->bye = (SSL_get_shutdown(end->ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
    t->ended |= got <= 0 && SSL_get_error(end->ssl, got) != SSL_ERROR_WANT_READ;
    return got > 0;
}

static bool hear_more(struct other_end *end, struct transcript *t)
{
    uint8_t bytes[4096];
    if (end->ssl != NULL)
        return hear_sealed(end, t);
    const ssize_t got = recv(end->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    t->ended |= got == 0 || (got < 0 && errno == ECONNRESET);
    for (ssize_t i = 0; i < got; i++) {
        size_t len = 1;
        const int kind = end->sealed ? unseal(&end->in, bytes[i], &len) : RECORD_DATA;
        CHECK(kind >= 0);
        t->bye |= kind == RECORD_BYE;
        if (kind != RECORD_DATA)
            continue;
        CHECK(t->len + len <= SAID_MAX);
        memcpy(t->bytes + t->len, end->sealed ? end->in.record + RECORD_HEAD_BYTES : bytes + i,
               len);
        t->len += len;
    }
    return got > 0;
}

/* ---- a dialogue ---- */

static struct transcript talk(const struct dialogue *d, const struct transport *transport)
{
    struct transcript t = {.bytes = calloc(1, SAID_MAX)};
    struct other_end end = {.sealed = transport == &sealed_transport};
    int ends[2];
    start();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    end.fd = ends[1];
    if (transport == &tls_transport) {
        CHECK((end.ssl = SSL_new(others)) != NULL);
        SSL_set_connect_state(end.ssl);
    }
    prepare(&end, d);
    struct conn *conn = loop_adopt(&reactor->loop, ends[0], d->protocol, transport);
    CHECK(conn != NULL);
    if (d->protocol == &replica_protocol)
        replica_of(conn)->frames = frames_new(1u << 20);
    reactor->admission.connections += d->protocol == &client_protocol;
    const uint64_t id = conn_id(conn);
    if (d->how & SOURCE)
        answer_from_source(conn);
    int quiet = 0;
    for (int turn = 0; !t.ended && quiet < QUIET_TURNS; turn++) {
        CHECK(turn < TURNS_MAX);
        say_more(&end, d);
        reactor_run(reactor, 1000000);
        take_upcalls(&t);
        conn = loop_conn(&reactor->loop, id);
        const bool busy = hear_more(&end, &t) || end.wire_sent < end.wire_len ||
                          !log_idle(reactor->log) || (conn != NULL && conn->out_first != NULL);
        quiet = busy ? 0 : quiet + 1;
    }
    close(end.fd);
    for (int turn = 0; loop_conn(&reactor->loop, id) != NULL; turn++) {
        CHECK(turn < TURNS_MAX);
        reactor_run(reactor, 1000000);
        take_upcalls(&t);
    }
    stop();
    SSL_free(end.ssl);
    free(end.wire);
    return t;
}

/* What a process says of its own: when, and which of its requests it was. */
static void mask(struct transcript *t, const char *name)
{
    const size_t len = strlen(name);
    for (char *at = (char *)t->bytes; (at = strstr(at, name)) != NULL; at += len)
        memset(at + len, '*', strcspn(at + len, "\r"));
}

static void mask_own(struct transcript *t)
{
    mask(t, "\r\nDate: ");
    mask(t, "\r\nBarco-Request-Id: ");
}

static void check_same(const struct dialogue *d, const struct transport *transport)
{
    struct transcript plain = talk(d, &plain_transport), other = talk(d, transport);
    mask_own(&plain);
    mask_own(&other);
    if (plain.len != other.len || memcmp(plain.bytes, other.bytes, plain.len) != 0)
        fprintf(stderr, "%s: %zu bytes, %zu over the other transport:\n%s\n\n%s\n", d->name,
                plain.len, other.len, plain.bytes, other.bytes);
    CHECK(plain.len == other.len && memcmp(plain.bytes, other.bytes, plain.len) == 0);
    CHECK(plain.ended == other.ended);
    CHECK(plain.len > 0 || plain.ended);
    if (transport == &sealed_transport)
        CHECK(other.bye == ((d->how & SAYS_BYE) != 0));
    if (transport == &tls_transport) /* it is said before each end that is not an error */
        CHECK(other.bye == other.ended);
    free(plain.bytes);
    free(other.bytes);
}

/* With a key: without one the slice would follow from how many groups there were before. */
#define POST \
    "POST /v1/topic/t/messages?partitionKey=k HTTP/1.1\r\nHost: h\r\nContent-Type: " \
    "application/json\r\n"
#define TEXT(text) (const uint8_t *)text, sizeof text - 1

static uint8_t large[70000];
static size_t large_len;

static void make_large(void)
{
    const char head[] = POST "Content-Length: 60000\r\n\r\n";
    memcpy(large, head, sizeof head - 1);
    memset(large + sizeof head - 1, '7', 60000);
    large_len = sizeof head - 1 + 60000;
}

static size_t make_call(uint8_t *out, bool known)
{
    struct call_frame frame = {.op = known ? OP_CALL : 77, .content = CONTENT_EVENT,
                               .topic_len = 1, .tag = 0x1122334455667788, .body_len = 2};
    frame.bytes = sizeof frame + 3;
    memcpy(out, &frame, sizeof frame);
    memcpy(out + sizeof frame, "t{}", 3);
    return frame.bytes;
}

static void test_all(const struct transport *transport)
{
    static uint8_t call[256], wrong[256];
    const size_t call_len = make_call(call, true), wrong_len = make_call(wrong, false);
    const struct dialogue all[] = {
        {"one event", &client_protocol, TEXT(POST "Content-Length: 2\r\n\r\n{}"), ALL},
        {"a chunked one", &client_protocol,
         TEXT(POST "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"), ALL},
        {"a pipeline", &client_protocol,
         TEXT(POST "Content-Length: 2\r\n\r\n{}" POST "Content-Length: 2\r\n\r\n{}" POST
                   "Content-Length: 4\r\n\r\n\"ab\"" POST "Content-Length: 1\r\n\r\n1"), ALL},
        {"a large one", &client_protocol, large, large_len, ALL},
        {"no request", &client_protocol, TEXT("nonsense\r\n\r\n"), SAYS_BYE},
        {"the last one", &client_protocol,
         TEXT(POST "Connection: close\r\nContent-Length: 2\r\n\r\n{}"), SAYS_BYE},
        {"half of a connection", &client_protocol, TEXT(POST "Content-Length: 2\r\n\r\n{}"),
         HALF_CLOSE},
        {"half of a request", &client_protocol, TEXT(POST "Content-Length: 2\r\n\r\n{"),
         HALF_CLOSE},
        {"from where it lies", &client_protocol, TEXT(""), SOURCE},
        {"a call", &peer_protocol, call, call_len, ALL},
        {"no call", &peer_protocol, wrong, wrong_len, ALL},
        {"another replica's", &replica_protocol, TEXT("\5\0\0\0\4\0\0\0hellodata"), ALL},
        {"no replica's", &replica_protocol, TEXT("\5\0\0\377\4\0\0\0hello"), ALL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_same(&all[i], transport);
}

/* Whoever cuts a connection looks like one who ends it, where an end is not announced. */
static void test_an_end_that_was_not_announced(void)
{
    int ends[2];
    uint8_t wire[RECORD_HEAD_BYTES], count = 0;
    const uint32_t before = sealed_cuts;
    start();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    struct conn *conn =
        loop_adopt(&reactor->loop, ends[0], &client_protocol, &sealed_transport);
    const uint64_t id = conn_id(conn);
    const size_t len = seal(&count, RECORD_HELLO, NULL, 0, wire);
    CHECK(send(ends[1], wire, len, MSG_NOSIGNAL) == (ssize_t)len);
    shutdown(ends[1], SHUT_WR);
    for (int turn = 0; loop_conn(&reactor->loop, id) != NULL; turn++) {
        CHECK(turn < TURNS_MAX);
        reactor_run(reactor, 1000000);
    }
    CHECK(sealed_cuts == before + 1);
    close(ends[1]);
    stop();
}

int main(void)
{
    make_large();
    make_certificate(&authority, NULL, 30);
    CHECK((others = SSL_CTX_new(TLS_client_method())) != NULL);
    for (engine = 1; engine <= 2; engine++) {
        if (!engine_is_there(engine))
            continue;
        test_all(&sealed_transport);
        test_all(&trickle_transport);
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            CHECK(SSL_CTX_set_max_proto_version(others, version) == 1);
            test_all(&tls_transport);
        }
        test_an_end_that_was_not_announced();
    }
    SSL_CTX_free(others);
    made_free(&authority);
    return 0;
}
