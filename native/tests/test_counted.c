/* How many connections a user has, when they end: in each state, by either end, in plain and under
 * TLS, with another table meanwhile. What is counted is seen from outside: of a user who may have
 * one connection, a second is refused while the first one is there, and taken when it is gone. */
#define _GNU_SOURCE
#include <openssl/evp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admission/access.h"
#include "broker/reactor.h"
#include "codec_testing.h"
#include "loop/tls.h"
#include "tests/tls_testing.h"
#include "tests/worker_testing.h"

#define TURNS_MAX 20000
#define LONG_BYTES (4u << 20) /* more than the sockets and OpenSSL hold */
#define ENTRY_BYTES_MAX 128

enum state {
    SILENT, HALF_A_HEAD, NOBODYS, SHOWN, BODY, CHUNKS, REFUSED, LINGERING, WAITING, ANSWERING,
    ANOTHERS, STATES
};
enum end_of { BY_THEM, BY_US, BY_THEM_LATER, BY_US_LATER, AT_THE_STOP, ENDS };

static const char *const names[STATES] = {
    "silent", "half a head", "nobody's", "shown", "a body under way", "chunks under way",
    "a refused body under way", "a large refused body", "waiting", "answering", "another user's"};

static struct reactor *reactor;
static const struct transport *transport;
static int engine;
static struct made broker;
static SSL_CTX *visitors;
static uint64_t asked; /* the last request that Python would have got */
static uint32_t asked_count;
static uint8_t long_answer[LONG_BYTES];

/* ---- the worker ---- */

/* User number, whose name and token are the same; may have one connection, and produce to "t". */
static size_t put_user(uint8_t *at, const char *name, uint8_t number)
{
    uint8_t *start = at;
    CHECK(EVP_Digest(name, strlen(name), at, NULL, EVP_sha256(), NULL) == 1);
    memcpy(at + ACCESS_HASH_BYTES, at, ACCESS_HASH_BYTES);
    at += 2 * ACCESS_HASH_BYTES;
    const uint8_t rest[] = {number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                            1,      0, 0, 0, 0, 1, 0, 1, 't'};
    memcpy(at, rest, sizeof rest);
    return (size_t)(at - start) + sizeof rest;
}

static void tell_users(void)
{
    uint8_t ann[ENTRY_BYTES_MAX], bob[ENTRY_BYTES_MAX], table[2 * ENTRY_BYTES_MAX];
    const size_t len = put_user(ann, "ann", 0);
    CHECK(put_user(bob, "bob", 1) == len && len <= ENTRY_BYTES_MAX);
    const bool ann_first = memcmp(ann, bob, ACCESS_HASH_BYTES) < 0;
    memcpy(table, ann_first ? ann : bob, len);
    memcpy(table + len, ann_first ? bob : ann, len);
    CHECK(access_set(reactor, table, 2 * len));
}

static void start(void)
{
    reactor = worker_new(engine, &broker);
    tell_users();
}

static void stop(void)
{
    worker_free(reactor);
}

static void nothing(void *owner) {}

/* As Python answers a request, with so many bytes. */
static void answer(uint64_t id, uint32_t len)
{
    char head[128];
    const int head_len =
        snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n", len);
    struct conn *conn = loop_conn(&reactor->loop, id >> 24);
    if (conn == NULL || conn->closed)
        return;
    struct slot *slot = conn_slot(conn, (uint32_t)(id & 0xffffff));
    CHECK(slot != NULL && slot->kind == SLOT_OPEN);
    slot->first = slot->last = output_new((size_t)head_len);
    CHECK(slot->first != NULL);
    memcpy(slot->first->own, head, (size_t)head_len);
    slot->first->len = (uint32_t)head_len;
    conn_write_foreign(&slot->first, &slot->last, long_answer, len, nothing, NULL);
    slot->kind = SLOT_PYTHON;
    slot->status = 200;
    conn_answer(conn, slot);
}

/* Python answers nobody until it is told; but where somebody has gone it ends what it does. */
static void turn(void)
{
    uint64_t aborted[8];
    uint32_t count = 0;
    reactor_run(reactor, 1000000);
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        const struct upcall *up = &reactor->upcalls[i];
        if (up->kind == UPCALL_REQUEST) {
            asked = up->id;
            asked_count++;
        }
        if (up->kind == UPCALL_ABORTED && count < 8)
            aborted[count++] = up->id;
        free(up->head);
        if (up->body != NULL)
            body_release(up->body);
    }
    reactor->upcall_count = 0;
    for (uint32_t i = 0; i < count; i++)
        answer(aborted[i], 2);
}

/* ---- the other end ---- */

struct end {
    int fd;
    uint64_t id; /* of the connection in the worker */
    SSL *ssl;    /* NULL: plain */
};

static struct end come(const struct transport *over)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    struct conn *conn = loop_adopt(&reactor->loop, ends[0], &client_protocol, over);
    CHECK(conn != NULL);
    reactor->admission.connections++;
    struct end end = {.fd = ends[1], .id = conn_id(conn)};
    if (over == &tls_transport) {
        CHECK((end.ssl = SSL_new(visitors)) != NULL);
        SSL_set_fd(end.ssl, end.fd);
        SSL_set_connect_state(end.ssl);
    }
    return end;
}

static struct conn *conn_of(const struct end *end) { return loop_conn(&reactor->loop, end->id); }

static void leave(struct end *end)
{
    SSL_free(end->ssl); /* and says nothing: a cut */
    close(end->fd);
    for (int n = 0; conn_of(end) != NULL; n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
}

static void say(struct end *end, const char *text)
{
    size_t left = strlen(text);
    for (int n = 0; left > 0; n++) {
        CHECK(n < TURNS_MAX);
        const ssize_t sent = end->ssl != NULL
                                 ? SSL_write(end->ssl, text, (int)left)
                                 : send(end->fd, text, left, MSG_NOSIGNAL | MSG_DONTWAIT);
        text += sent > 0 ? sent : 0;
        left -= sent > 0 ? (size_t)sent : 0;
        turn();
    }
}

/* The status of the next answer. */
static int hear(struct end *end)
{
    char text[2048] = "";
    size_t len = 0;
    for (int n = 0; strstr(text, "\r\n\r\n") == NULL; n++) {
        CHECK(n < TURNS_MAX && len < sizeof text - 1);
        turn();
        const ssize_t got =
            end->ssl != NULL
                ? SSL_read(end->ssl, text + len, (int)(sizeof text - 1 - len))
                : recv(end->fd, text + len, sizeof text - 1 - len, MSG_DONTWAIT);
        len += got > 0 ? (size_t)got : 0;
    }
    return atoi(strstr(text, "HTTP/1.1 ") + sizeof "HTTP/1.1"); /* behind the last one's body */
}

#define AS(name) "Host: h\r\nAuthorization: Bearer " name "\r\n"
#define ASK "GET /v1/topics HTTP/1.1\r\n"
#define POST(topic) "POST /v1/topic/" topic "/messages?partitionKey=k HTTP/1.1\r\n"

static void ask(struct end *end, const char *text)
{
    const uint32_t before = asked_count;
    say(end, text);
    for (int n = 0; asked_count == before; n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
}

/* Whether a user who may have one connection has none; one more comes for it, and goes. */
static bool has_none(const char *request)
{
    struct end end = come(&plain_transport);
    const uint32_t before = asked_count;
    say(&end, request);
    for (int n = 0; asked_count == before && n < 50; n++)
        turn();
    const bool taken = asked_count > before;
    if (!taken)
        CHECK(hear(&end) == 429);
    leave(&end);
    return taken;
}

/* ---- states ---- */

/* Says what brings a connection into that state, and looks whether it is in it. */
static void bring(struct end *end, enum state state)
{
    switch (state) {
    case SILENT:
        return;
    case HALF_A_HEAD:
        say(end, ASK "Host: h\r\nAuthorization: Bearer an");
        break;
    case NOBODYS:
        say(end, ASK AS("carl") "\r\n");
        CHECK(hear(end) == 401);
        break;
    case BODY:
        say(end, POST("t") AS("ann") "Content-Length: 1000\r\n\r\n1234");
        break;
    case CHUNKS:
        say(end, POST("t") AS("ann") "Transfer-Encoding: chunked\r\n\r\n9\r\n1234");
        break;
    case REFUSED:
        say(end, POST("u") AS("ann") "Content-Length: 1000\r\n\r\n1234");
        CHECK(hear(end) == 403);
        break;
    case LINGERING:
        say(end, POST("u") AS("ann") "Content-Length: 9000000\r\n\r\n1234");
        CHECK(hear(end) == 403);
        break;
    default:
        ask(end, ASK AS("ann") "\r\n");
        if (state != WAITING)
            answer(asked, state == ANSWERING ? LONG_BYTES : 2);
        if (state == SHOWN || state == ANOTHERS)
            CHECK(hear(end) == 200);
        if (state == SHOWN) { /* once more: that is no second connection */
            ask(end, ASK AS("ann") "\r\n");
            answer(asked, 2);
            CHECK(hear(end) == 200);
        }
        if (state == ANOTHERS)
            ask(end, ASK AS("bob") "\r\n");
    }
    for (int n = 0; n < 5; n++)
        turn();
    static const uint8_t reached[STATES] = {
        [BODY] = STATE_BODY, [CHUNKS] = STATE_CHUNKED, [REFUSED] = STATE_DISCARD,
        [LINGERING] = STATE_LINGER};
    const struct conn *conn = conn_of(end);
    CHECK(conn != NULL && client_of(conn)->state == reached[state]);
    CHECK((conn->out_first != NULL) == (state == ANSWERING));
    CHECK(client_of(conn)->control_open == (state == WAITING || state == ANOTHERS));
}

static void test_end(enum state state, enum end_of how)
{
    const bool anns = state >= SHOWN && state != ANOTHERS, bobs = state == ANOTHERS;
    start();
    struct end end = come(transport);
    bring(&end, state);
    if (how == BY_THEM_LATER || how == BY_US_LATER)
        tell_users(); /* another table: the count goes on */
    if (has_none(ASK AS("ann") "\r\n") == anns || has_none(ASK AS("bob") "\r\n") == bobs) {
        fprintf(stderr, "%s: is not counted as it should be\n", names[state]);
        exit(1);
    }
    if (how == AT_THE_STOP) {
        stop();
        SSL_free(end.ssl);
        close(end.fd);
        return;
    }
    if (how == BY_US || how == BY_US_LATER)
        conn_close(conn_of(&end));
    leave(&end);
    struct end held = come(&plain_transport);
    if (!has_none(ASK AS("ann") "\r\n") || !has_none(ASK AS("bob") "\r\n")) {
        fprintf(stderr, "%s: is counted though it has ended (%d)\n", names[state], how);
        exit(1);
    }
    ask(&held, ASK AS("ann") "\r\n"); /* not less than none either: one, and no second */
    CHECK(!has_none(ASK AS("ann") "\r\n"));
    leave(&held);
    CHECK(reactor->shown == NULL);
    stop();
}

static void test_all(void)
{
    for (enum state state = SILENT; state < STATES; state++)
        for (enum end_of how = BY_THEM; how < ENDS; how++)
            test_end(state, how);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    memset(long_answer, 'x', sizeof long_answer);
    make_certificate(&broker, NULL, 30);
    CHECK((visitors = SSL_CTX_new(TLS_client_method())) != NULL);
    for (engine = 1; engine <= 2; engine++) {
        if (!engine_is_there(engine))
            continue;
        transport = &plain_transport;
        test_all();
        transport = &tls_transport;
        test_all();
    }
    SSL_CTX_free(visitors);
    made_free(&broker);
    return 0;
}
