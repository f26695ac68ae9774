/* A loop that ends with connections: each is closed once, all of them before the first is freed,
 * and those that speak TLS have heard that nothing follows. Real sockets, both engines. */
#define _GNU_SOURCE
#include <openssl/ssl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/reactor.h"
#include "loop/tls.h"
#include "tests/tls_testing.h"
#include "tests/worker_testing.h"

#define TURNS_MAX 5000
#define LONG_BYTES (4u << 20) /* more than a socket holds */

/* ---- a protocol whose connections know each other ---- */

struct toy {
    struct conn conn;
    struct toy *other; /* to whom it has a word when it is closed */
    uint32_t words;
};

static uint64_t kept;
static uint32_t closed, freed;

static struct toy *toy_of(const struct conn *conn) { return (struct toy *)conn; }

static void toy_opened(struct conn *conn) { conn->kept = &kept; }
static void toy_resume(struct conn *conn) {}
static void toy_deadline(struct conn *conn, int64_t now_ms) {}

static void toy_input(struct conn *conn, const uint8_t *bytes, size_t len)
{
    toy_of(conn)->words++;
}

static void toy_closed(struct conn *conn)
{
    CHECK(freed == 0);
    closed++;
    toy_of(conn)->other->words++;
}

static void toy_freed(struct conn *conn)
{
    CHECK(conn->closed);
    freed++;
}

static const struct protocol toys = {
    .bytes = sizeof(struct toy), .opened = toy_opened, .input = toy_input, .resume = toy_resume,
    .closed = toy_closed, .freed = toy_freed, .deadline = toy_deadline};

static void on_ticked(struct loop *loop, int64_t elapsed_us) {}
static void on_accepted(struct loop *loop, struct listener *listener, int fd) {}
static void on_failed(struct loop *loop, struct listener *listener, int error) {}
static const struct loop_owner owner = {on_ticked, on_accepted, on_failed};

enum { IDLE, CLOSED, SENDS, HALF_SHAKEN, SHAKEN, KINDS };

static struct toy *come(struct loop *loop, const struct transport *transport, int *fd)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    *fd = ends[1];
    struct conn *conn = loop_adopt(loop, ends[0], &toys, transport);
    CHECK(conn != NULL);
    return toy_of(conn);
}

static void turn(struct loop *loop)
{
    loop_clock(loop);
    loop_wait(loop, 1000000);
    tls_tend(loop);
    loop_tend(loop);
}

/* A visitor that has shaken hands, and has been heard. */
static SSL *shaken(struct loop *loop, SSL_CTX *visitors, const struct toy *toy, int fd)
{
    SSL *ssl = SSL_new(visitors);
    CHECK(ssl != NULL && SSL_set_fd(ssl, fd) == 1);
    SSL_set_connect_state(ssl);
    for (int n = 0; toy->words == 0; n++) {
        CHECK(n < TURNS_MAX);
        SSL_write(ssl, "?", 1);
        turn(loop);
    }
    return ssl;
}

static void test_a_loop(int engine, const struct made *broker, SSL_CTX *visitors)
{
    struct loop loop = {0};
    const char *error = NULL;
    char why[TLS_WHY_BYTES];
    struct toy *all[KINDS];
    int fds[KINDS];
    static char long_answer[LONG_BYTES];
    CHECK(loop_init(&loop, &owner, engine, &error));
    const struct tls_options tls = options_of(broker, 1000);
    CHECK(tls_set(&loop, &tls, why));
    for (int kind = 0; kind < KINDS; kind++)
        all[kind] = come(&loop, kind < HALF_SHAKEN ? &plain_transport : &tls_transport, &fds[kind]);
    for (int kind = 0; kind < KINDS; kind++)
        all[kind]->other = all[(kind + 1) % KINDS];
    SSL *ssl = shaken(&loop, visitors, all[SHAKEN], fds[SHAKEN]);
    CHECK(write(fds[HALF_SHAKEN], "\x16\x03\x01", 3) == 3);
    conn_write(&all[SENDS]->conn, long_answer, sizeof long_answer);
    conn_mark_dirty(&all[SENDS]->conn);
    loop_tend(&loop);
    for (int n = 0; n < 5; n++)
        turn(&loop);
    CHECK(all[SENDS]->conn.out_first != NULL);
    conn_close(&all[CLOSED]->conn); /* and not reaped */
    CHECK(closed == 1);
    loop_free(&loop);
    tls_free(&loop);
    CHECK(closed == KINDS && freed == KINDS && kept == 0);
    char byte;
    const int got = SSL_read(ssl, &byte, 1);
    CHECK(got <= 0 && SSL_get_error(ssl, got) == SSL_ERROR_ZERO_RETURN); /* else it was cut */
    SSL_free(ssl);
    for (int kind = 0; kind < KINDS; kind++)
        close(fds[kind]);
    closed = freed = 0;
}

/* ---- a worker, between a client and the process that has its event ---- */

static void attach(struct reactor *reactor, int *fd)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    *fd = ends[1];
    CHECK(reactor_attach_peer(reactor, 1, ends[0], NULL) == 0);
}

static void ask(struct reactor *reactor, int *fd)
{
    static const char request[] = "POST /v1/topic/t/messages?slice=0 HTTP/1.1\r\nHost: h\r\n"
                                  "Content-Length: 2\r\n\r\n{}";
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    *fd = ends[1];
    CHECK(loop_adopt(&reactor->loop, ends[0], &client_protocol, &plain_transport) != NULL);
    CHECK(write(ends[1], request, sizeof request - 1) == (ssize_t)sizeof request - 1);
}

/* Whoever comes last is the first to be closed. */
static void test_a_worker(int engine, const struct made *broker, bool client_last)
{
    int peer, client;
    struct reactor *reactor = worker_new(engine, broker);
    CHECK(reactor_set_route(reactor, 0, 4, 1, "127.0.0.2:9300") == 0);
    if (client_last)
        attach(reactor, &peer);
    ask(reactor, &client);
    if (!client_last)
        attach(reactor, &peer);
    for (int n = 0; reactor->handed_out == 0; n++) {
        CHECK(n < TURNS_MAX);
        reactor_run(reactor, 1000000);
    }
    CHECK(reactor->calls[0].used && reactor->peers[1] != NULL);
    worker_free(reactor);
    close(peer);
    close(client);
}

int main(void)
{
    struct made broker;
    signal(SIGPIPE, SIG_IGN);
    make_certificate(&broker, NULL, 30);
    SSL_CTX *visitors = SSL_CTX_new(TLS_client_method());
    CHECK(visitors != NULL);
    for (int engine = 1; engine <= 2; engine++) {
        if (!engine_is_there(engine))
            continue;
        test_a_loop(engine, &broker, visitors);
        test_a_worker(engine, &broker, false);
        test_a_worker(engine, &broker, true);
    }
    SSL_CTX_free(visitors);
    made_free(&broker);
    return 0;
}
