/* TLS of a worker: what is refused, what is bounded, what is given back. The other ends are
 * OpenSSL's clients on real sockets; test_transport.c has the dialogues. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/reactor.h"
#include "codec_testing.h"
#include "loop/tls.h"
#include "tests/tls_testing.h"
#include "tests/worker_testing.h"

#define TURNS_MAX 20000
#define MANY 40

static struct reactor *reactor;
static int engine;
static struct made authority, broker, stranger, visitor;
static SSL_CTX *visitors;

static bool seal_with(struct tls_options options)
{
    char why[TLS_WHY_BYTES] = "";
    return tls_set(&reactor->loop, &options, why);
}

static void start(struct tls_options tls)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .session = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 4u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 1, .peers = 3,
        .connections_max = 2 * MANY, .range_start = INT64_MIN, .engine = engine};
    const char *error;
    reactor = reactor_new(&options, &error);
    CHECK(reactor != NULL && tls_figures(&reactor->loop) == NULL);
    CHECK(seal_with(tls));
}

static void stop(void)
{
    reactor_free(reactor);
}

static void turn(void)
{
    reactor_run(reactor, 1000000);
    CHECK(reactor->upcall_count == 0);
}

struct end {
    int fd;
    uint64_t id; /* of the connection in the worker */
    SSL *ssl;
};

static struct end come(void)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    struct conn *conn = loop_adopt(&reactor->loop, ends[0], &client_protocol, &tls_transport);
    CHECK(conn != NULL);
    struct end end = {.fd = ends[1], .id = conn_id(conn), .ssl = SSL_new(visitors)};
    SSL_set_fd(end.ssl, end.fd);
    SSL_set_connect_state(end.ssl);
    return end;
}

static void leave(struct end *end)
{
    SSL_free(end->ssl);
    close(end->fd);
    for (int n = 0; loop_conn(&reactor->loop, end->id) != NULL; n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
}

static bool is_there(const struct end *end) { return loop_conn(&reactor->loop, end->id) != NULL; }

/* Whether the handshake, and what the worker says to it, comes to a good end. */
static bool shakes(struct end *end)
{
    char byte;
    for (int n = 0; n < TURNS_MAX; n++) {
        turn();
        const int got = SSL_do_handshake(end->ssl);
        if (got != 1 && SSL_get_error(end->ssl, got) != SSL_ERROR_WANT_READ)
            return false;
        /* In TLS 1.3 only what is read next says whether the worker is content. */
        if (got == 1 && n > 20) {
            const int read = SSL_read(end->ssl, &byte, 1);
            return SSL_get_error(end->ssl, read) == SSL_ERROR_WANT_READ;
        }
    }
    return false;
}

static void test_files(void)
{
    char why[TLS_WHY_BYTES];
    int64_t from_s, until_s;
    struct tls_options good = options_of(&broker, 1000), bad = good;
    start(good);
    bad.key = stranger.key_pem;
    bad.key_len = stranger.key_len;
    CHECK(!tls_set(&reactor->loop, &bad, why) && strstr(why, "not that of the certificate"));
    bad = good;
    bad.certificate_len /= 2;
    CHECK(!tls_set(&reactor->loop, &bad, why) && strstr(why, "no PEM file"));
    bad = good;
    bad.key_len = 0;
    CHECK(!tls_set(&reactor->loop, &bad, why) && strstr(why, "are needed"));
    bad = good;
    bad.client_ca = good.key;
    bad.client_ca_len = good.key_len;
    CHECK(!tls_set(&reactor->loop, &bad, why) && strstr(why, "client_ca"));
    CHECK(tls_dates(&good, &from_s, &until_s, why));
    const int64_t now_s = time(NULL);
    CHECK(from_s < now_s && until_s > now_s + 29 * 86400 && until_s < now_s + 31 * 86400);
    struct end end = come(); /* what was refused has changed nothing */
    CHECK(shakes(&end));
    leave(&end);
    stop();
}

static void test_another_certificate_for_who_comes(void)
{
    start(options_of(&broker, 1000));
    struct end before = come(), after;
    CHECK(shakes(&before));
    CHECK(seal_with(options_of(&stranger, 1000)));
    after = come();
    CHECK(shakes(&after));
    X509 *has = SSL_get1_peer_certificate(after.ssl);
    CHECK(X509_cmp(has, stranger.certificate) == 0);
    X509_free(has);
    CHECK(SSL_write(before.ssl, "GET", 3) == 3); /* goes on */
    turn();
    CHECK(is_there(&before));
    leave(&before);
    leave(&after);
    stop();
}

static void test_certificates_of_clients(void)
{
    struct tls_options options = options_of(&broker, 1000);
    options.client_ca = authority.certificate_pem;
    options.client_ca_len = authority.certificate_len;
    start(options);
    const struct made *const shown[] = {NULL, &stranger, &visitor};
    for (int i = 0; i < 3; i++) {
        struct end end = come();
        if (shown[i] != NULL)
            CHECK(SSL_use_certificate(end.ssl, shown[i]->certificate) == 1 &&
                  SSL_use_PrivateKey(end.ssl, shown[i]->key) == 1);
        CHECK(shakes(&end) == (i == 2));
        CHECK(is_there(&end) == (i == 2));
        leave(&end);
    }
    CHECK(tls_figures(&reactor->loop)->failed == 2 && tls_figures(&reactor->loop)->reason != NULL);
    stop();
}

static int let_in(int good, X509_STORE_CTX *store) { return 1; }

/* The session that a worker with these options would have given to `who`, whatever the date. */
static SSL_SESSION *session_of(const struct tls_options *options, const struct made *who,
                               int version)
{
    char why[TLS_WHY_BYTES], byte;
    int ends[2], done[2] = {0, 0};
    SSL_CTX *context = tls_context_new(options, why);
    CHECK(context != NULL && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, let_in);
    SSL *ssl[2] = {SSL_new(context), SSL_new(visitors)};
    for (int i = 0; i < 2; i++)
        CHECK(SSL_set_fd(ssl[i], ends[i]) == 1 &&
              SSL_set_max_proto_version(ssl[i], version) == 1);
    SSL_set_accept_state(ssl[0]);
    SSL_set_connect_state(ssl[1]);
    CHECK(SSL_use_certificate(ssl[1], who->certificate) == 1 &&
          SSL_use_PrivateKey(ssl[1], who->key) == 1);
    for (int n = 0; n < 20; n++)
        for (int i = 0; i < 2; i++)
            done[i] = SSL_do_handshake(ssl[i]);
    CHECK(done[0] == 1 && done[1] == 1 && SSL_read(ssl[1], &byte, 1) <= 0); /* with the ticket */
    SSL_SESSION *session = SSL_get1_session(ssl[1]);
    for (int i = 0; i < 2; i++) {
        SSL_set_shutdown(ssl[i], SSL_SENT_SHUTDOWN); /* else its session is none any more */
        SSL_free(ssl[i]);
        close(ends[i]);
    }
    SSL_CTX_free(context);
    return session;
}

static void test_a_ticket_ends_with_its_certificate(void)
{
    static const uint8_t keys[TLS_TICKET_KEYS_BYTES] = {1, 2, 3};
    struct made late;
    make_certificate(&late, &authority, -1);
    struct tls_options options = options_of(&broker, 1000);
    options.client_ca = authority.certificate_pem;
    options.client_ca_len = authority.certificate_len;
    options.ticket_keys = keys;
    start(options);
    for (int i = 0; i < 4; i++) {
        const int version = i < 2 ? TLS1_3_VERSION : TLS1_2_VERSION;
        const bool is_good = i % 2 == 0;
        SSL_SESSION *session = session_of(&options, is_good ? &visitor : &late, version);
        struct end end = come();
        CHECK(SSL_set_max_proto_version(end.ssl, version) == 1);
        CHECK(SSL_set_session(end.ssl, session) == 1); /* and it shows no certificate */
        CHECK(shakes(&end) == is_good && is_there(&end) == is_good);
        CHECK(SSL_session_reused(end.ssl) == is_good);
        leave(&end);
        SSL_SESSION_free(session);
    }
    CHECK(tls_figures(&reactor->loop)->resumed == 2);
    made_free(&late);
    stop();
}

/* Who says early data all the same, by a ticket that has it allowed: it is skipped, as much as a
 * record has, and the handshake goes on; with more it ends. No request comes of it. */
static void test_early_data_is_never_heard(void)
{
    static const uint8_t keys[TLS_TICKET_KEYS_BYTES] = {1, 2, 3};
    static char said[40000] = "GET /ready HTTP/1.1\r\nHost: h\r\n\r\n";
    struct tls_options options = options_of(&broker, 1000);
    options.client_ca = authority.certificate_pem;
    options.client_ca_len = authority.certificate_len;
    options.ticket_keys = keys;
    start(options);
    for (unsigned i = 0; i < 2; i++) {
        SSL_SESSION *session = session_of(&options, &visitor, TLS1_3_VERSION);
        CHECK(SSL_SESSION_set_max_early_data(session, 1u << 20) == 1);
        struct end end = come();
        CHECK(SSL_set_session(end.ssl, session) == 1);
        size_t written;
        const size_t len = i == 0 ? strlen(said) : sizeof said;
        CHECK(SSL_write_early_data(end.ssl, said, len, &written) == 1 && written == len);
        CHECK(shakes(&end) == (i == 0) && is_there(&end) == (i == 0));
        if (i == 0)
            CHECK(SSL_get_early_data_status(end.ssl) == SSL_EARLY_DATA_REJECTED &&
                  SSL_session_reused(end.ssl));
        CHECK(reactor->requests == 0);
        leave(&end);
        SSL_SESSION_free(session);
    }
    CHECK(tls_figures(&reactor->loop)->failed == 1);
    stop();
}

static void test_who_speaks_plain(void)
{
    char answer[512];
    start(options_of(&broker, 1000));
    struct end http = come(), other = come();
    CHECK(write(http.fd, "GET / HTTP/1.1\r\n\r\n", 18) == 18 &&
          write(other.fd, "\x01\x02", 2) == 2);
    for (int n = 0; is_there(&http) || is_there(&other); n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
    const ssize_t len = read(http.fd, answer, sizeof answer - 1);
    CHECK(len > 0);
    answer[len] = 0;
    const char *body = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "Content-Length: ");
    CHECK(strncmp(answer, "HTTP/1.1 400 ", 13) == 0 && body != NULL && length != NULL);
    CHECK(strlen(body + 4) == strtoul(length + 16, NULL, 10));
    CHECK(read(other.fd, answer, sizeof answer) == 0);
    CHECK(tls_figures(&reactor->loop)->plain == 2 && tls_figures(&reactor->loop)->failed == 0);
    leave(&http);
    leave(&other);
    stop();
}

static void test_a_cut(void)
{
    start(options_of(&broker, 1000));
    struct end end = come();
    CHECK(shakes(&end));
    CHECK(SSL_write(end.ssl, "GET /", 5) == 5);
    shutdown(end.fd, SHUT_WR);
    for (int n = 0; is_there(&end); n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
    CHECK(tls_figures(&reactor->loop)->cut == 1);
    leave(&end);
    stop();
}

static void test_who_is_slow(void)
{
    struct tls_options options = options_of(&broker, 1000);
    options.handshake_ms = 50;
    start(options);
    struct end end = come(), silent = come();
    CHECK(write(end.fd, "\x16\x03", 2) == 2);
    for (int n = 0; is_there(&end); n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
    CHECK(tls_figures(&reactor->loop)->late == 1 && tls_figures(&reactor->loop)->under_way == 0);
    CHECK(is_there(&silent)); /* costs no more than one without TLS */
    leave(&end);
    leave(&silent);
    stop();
}

/* Four are begun at once, then one in each 62 ms: nobody is turned away, and nobody overtakes. */
static void test_many_at_once(void)
{
    struct end ends[MANY];
    unsigned done = 0, waiting = 0;
    start(options_of(&broker, 16));
    for (int i = 0; i < MANY / 4; i++)
        ends[i] = come();
    for (int n = 0; done < MANY / 4; n++) {
        CHECK(n < TURNS_MAX);
        turn();
        const struct tls_figures *figures = tls_figures(&reactor->loop);
        waiting = figures->in_line > waiting ? figures->in_line : waiting;
        for (int i = 0; i < MANY / 4; i++)
            SSL_do_handshake(ends[i].ssl);
        for (; done < MANY / 4 && SSL_is_init_finished(ends[done].ssl); done++)
            CHECK(is_there(&ends[done]));
        for (unsigned i = done + 1; i < MANY / 4; i++)
            CHECK(!SSL_is_init_finished(ends[i].ssl));
    }
    CHECK(waiting >= MANY / 4 - 6 && tls_figures(&reactor->loop)->refused == 0);
    for (int i = 0; i < MANY / 4; i++)
        leave(&ends[i]);
    CHECK(reactor->input_bytes == 0);
    stop();
}

/* Each wants an answer that nobody reads; and between them is what is no request yet. */
static void test_key_updates_without_an_end(void)
{
    uint64_t most = 0;
    int said = 0;
    start(options_of(&broker, 1000));
    struct end end = come();
    CHECK(shakes(&end));
    const int little = 4096;
    setsockopt(loop_conn(&reactor->loop, end.id)->fd, SOL_SOCKET, SO_SNDBUF, &little,
               sizeof little);
    for (int n = 0; is_there(&end); n++) {
        CHECK(n < TURNS_MAX);
        if (SSL_write(end.ssl, "\r\n", 2) == 2 &&
            SSL_key_update(end.ssl, SSL_KEY_UPDATE_REQUESTED) == 1 &&
            SSL_do_handshake(end.ssl) == 1)
            said++;
        if (n % 16 == 0)
            reactor_run(reactor, 0);
        most = reactor->input_bytes > most ? reactor->input_bytes : most;
    }
    CHECK(said > 500 && most < (300u << 10));
    leave(&end);
    CHECK(reactor->input_bytes == 0);
    stop();
}

static void test_key_updates_in_a_row(void)
{
    start(options_of(&broker, 1000));
    struct end end = come();
    CHECK(shakes(&end));
    for (int n = 0; n < 32; n++) {
        CHECK(SSL_key_update(end.ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
        CHECK(SSL_do_handshake(end.ssl) == 1);
    }
    turn();
    CHECK(is_there(&end));
    CHECK(SSL_key_update(end.ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    CHECK(SSL_do_handshake(end.ssl) == 1);
    for (int n = 0; is_there(&end); n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
    CHECK(tls_figures(&reactor->loop)->failed == 1);
    leave(&end);
    stop();
}

static void test_idle_costs_no_piece(void)
{
    start(options_of(&broker, 1000));
    struct end end = come();
    CHECK(shakes(&end));
    CHECK(loop_conn(&reactor->loop, end.id)->wire_bytes == 0);
    leave(&end);
    stop();
}

static void test_all(void)
{
    test_files();
    test_another_certificate_for_who_comes();
    test_certificates_of_clients();
    test_a_ticket_ends_with_its_certificate();
    test_early_data_is_never_heard();
    test_who_speaks_plain();
    test_a_cut();
    test_who_is_slow();
    test_many_at_once();
    test_key_updates_without_an_end();
    test_key_updates_in_a_row();
    test_idle_costs_no_piece();
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    make_certificate(&authority, NULL, 30);
    make_certificate(&broker, &authority, 30);
    make_certificate(&stranger, NULL, 30);
    make_certificate(&visitor, &authority, 30);
    CHECK((visitors = SSL_CTX_new(TLS_client_method())) != NULL);
    for (engine = 1; engine <= 2; engine++) {
        if (!engine_is_there(engine))
            continue;
        test_all();
    }
    SSL_CTX_free(visitors);
    made_free(&authority);
    made_free(&broker);
    made_free(&stranger);
    made_free(&visitor);
    return 0;
}
