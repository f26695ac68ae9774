/* Connections whose large answers the kernel seals: what arrives at OpenSSL's client, in every
 * order of answers, ends and wishes; and what is left of the keys. It has nothing to test where the
 * kernel has no TLS: `make ktls`. Real sockets of TCP, both engines. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "codec_testing.h"
#include "loop/output.h"
#include "loop/tls_state.h"
#include "tests/tls_testing.h"
#include "tests/worker_testing.h"

#define TURNS_MAX 20000
#define LONG_BYTES (1u << 20)
#define ROOM_BYTES 8192
#define ENDS_MAX 400

struct toy {
    struct conn conn;
    bool engaged;
};

static uint64_t kept, heard;
static struct made broker;
static SSL_CTX *visitors;
static struct loop loop;
static int engine;
static uint8_t long_answer[LONG_BYTES];

static void toy_opened(struct conn *conn) { conn->kept = &kept; }
static void toy_ignore(struct conn *conn) {}
static void toy_input(struct conn *conn, const uint8_t *bytes, size_t len) { heard += len; }
static void toy_deadline(struct conn *conn, int64_t now_ms) {}
static enum engaged toy_engaged(const struct conn *conn)
{
    return ((const struct toy *)conn)->engaged ? ENGAGED : ENGAGED_NOT;
}

static const struct protocol toys = {
    .bytes = sizeof(struct toy), .engaged = toy_engaged, .opened = toy_opened, .input = toy_input,
    .resume = toy_ignore, .half_closed = toy_ignore, .closed = toy_ignore, .freed = toy_ignore,
    .deadline = toy_deadline};

static void on_ticked(struct loop *of, int64_t elapsed_us) {}
static void on_accepted(struct loop *of, struct listener *listener, int fd) {}
static void on_failed(struct loop *of, struct listener *listener, int error) {}
static const struct loop_owner owner = {on_ticked, on_accepted, on_failed};

static void turn(void)
{
    loop_clock(&loop);
    loop_wait(&loop, 1000000);
    tls_tend(&loop);
    loop_tend(&loop);
    loop_reap(&loop);
}

struct end {
    int fd;
    uint64_t id;
    struct conn *conn;
    SSL *ssl;
};

static bool is_there(const struct end *end) { return loop_conn(&loop, end->id) != NULL; }

/* Both ends of a connection, of which little is on its way at a time. */
static void connect_both(int ends[2])
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof where;
    const int little = ROOM_BYTES, listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&where, sizeof where) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&where, &len) == 0);
    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_RCVBUF, &little, sizeof little) == 0);
    CHECK(connect(ends[1], (struct sockaddr *)&where, sizeof where) == 0);
    ends[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    CHECK(ends[0] >= 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little) == 0);
    close(listener);
}

/* A visitor that has shaken hands, and was heard. */
static struct end come(const char *cipher)
{
    int ends[2];
    connect_both(ends);
    struct end end = {.fd = ends[1], .conn = loop_adopt(&loop, ends[0], &toys, &tls_transport)};
    CHECK(end.conn != NULL);
    end.id = conn_id(end.conn);
    end.ssl = SSL_new(visitors);
    CHECK(SSL_set_fd(end.ssl, end.fd) == 1);
    CHECK(cipher == NULL || SSL_set_ciphersuites(end.ssl, cipher) == 1);
    SSL_set_connect_state(end.ssl);
    const struct timeval wait = {.tv_usec = 1000};
    CHECK(setsockopt(end.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0);
    heard = 0;
    for (int n = 0; heard == 0 || end.conn->sending; n++) {
        CHECK(n < TURNS_MAX);
        if (heard == 0 && SSL_do_handshake(end.ssl) == 1)
            SSL_write(end.ssl, "?", 1);
        turn();
    }
    CHECK(tls_of(end.conn)->established);
    return end;
}

static void leave(struct end *end)
{
    SSL_free(end->ssl);
    close(end->fd);
    for (int n = 0; is_there(end); n++) {
        CHECK(n < TURNS_MAX);
        if (n == 10 && !end->conn->closed) /* toys do not end by themselves */
            conn_close(end->conn);
        turn();
    }
    CHECK(kept == 0);
}

static void say(struct end *end, const void *bytes, size_t len)
{
    conn_write(end->conn, bytes, len);
    loop_tend(&loop);
}

static bool is_said(const struct end *end)
{
    return end->conn->out_first == NULL && !end->conn->sending;
}

/* What comes next has to be this. Else, what SSL_get_error() says. */
static int hear(struct end *end, const uint8_t *bytes, size_t len)
{
    static uint8_t got[LONG_BYTES];
    for (size_t have = 0, n = 0; have < len; n++) {
        CHECK(n < TURNS_MAX);
        turn();
        ERR_clear_error();
        const int more = SSL_read(end->ssl, got + have, (int)(len - have));
        const int error = SSL_get_error(end->ssl, more);
        if (more <= 0 && error != SSL_ERROR_WANT_READ)
            return error;
        have += more > 0 ? (size_t)more : 0;
        if (have == len)
            CHECK(memcmp(got, bytes, len) == 0);
    }
    return SSL_ERROR_NONE;
}

/* The end that is told, or -1 for a cut, or the alert. */
static int hear_the_end(struct end *end)
{
    uint8_t byte = 0;
    const int error = hear(end, &byte, 1);
    if (error == SSL_ERROR_ZERO_RETURN)
        return SSL_AD_CLOSE_NOTIFY;
    const unsigned long why = ERR_peek_error();
    const int reason = ERR_GET_REASON(why);
    return error == SSL_ERROR_SSL && reason > SSL_AD_REASON_OFFSET ? reason - SSL_AD_REASON_OFFSET
                                                                  : -1;
}

static void check_wiped(const struct end *end)
{
    const struct record_keys none = {0};
    CHECK(memcmp(&tls_of(end->conn)->bio.said, &none, sizeof none) == 0);
}

static void test_answers(const char *cipher)
{
    struct end end = come(cipher);
    say(&end, "little", 6);
    CHECK(hear(&end, (const uint8_t *)"little", 6) == 0 && tls_of(end.conn)->kernel == NULL);
    for (int n = 0; n < 2; n++) {
        say(&end, long_answer, LONG_BYTES);
        CHECK(tls_of(end.conn)->kernel != NULL);
        check_wiped(&end);
        CHECK(hear(&end, long_answer, LONG_BYTES) == 0);
        say(&end, "little", 6);
        CHECK(hear(&end, (const uint8_t *)"little", 6) == 0);
    }
    leave(&end);
}

/* A little of what comes next; all of it so far is `at` bytes of the long answer. */
static void hear_some(struct end *end, size_t *at)
{
    uint8_t some[512];
    const int got = SSL_read(end->ssl, some, sizeof some);
    if (got <= 0)
        return;
    CHECK(*at + (size_t)got <= LONG_BYTES && memcmp(some, long_answer + *at, (size_t)got) == 0);
    *at += (size_t)got;
}

/* Nobody reads further once all was said. Whether TCP had no room for some of it. */
static bool test_an_end(size_t len, bool closes)
{
    struct end end = come(NULL);
    size_t at = 0;
    say(&end, long_answer, len);
    CHECK(tls_of(end.conn)->kernel != NULL);
    for (int n = 0; !is_said(&end); n++) {
        CHECK(n < TURNS_MAX);
        turn();
        if (!is_said(&end))
            hear_some(&end, &at);
    }
    const bool owed = transport_owes(end.conn);
    for (int n = 0; closes && transport_owes(end.conn); n++) {
        CHECK(n < TURNS_MAX);
        hear_some(&end, &at);
    }
    if (closes)
        conn_close(end.conn);
    else
        conn_shutdown(end.conn);
    CHECK(hear(&end, long_answer + at, len - at) == 0);
    CHECK(closes || hear_the_end(&end) == SSL_AD_CLOSE_NOTIFY);
    leave(&end);
    return owed;
}

/* How much the kernel takes is its own choice: until it was more than there was room for, for a
 * while. */
static void test_ends(void)
{
    unsigned owed[2] = {0, 0};
    for (unsigned n = 0; owed[0] < 2 || owed[1] < 2; n++) {
        CHECK(n < ENDS_MAX); /* else nothing was tested */
        owed[n % 2] += test_an_end(4 * KERNEL_FROM_BYTES + 1777 * n, n % 2 == 0);
    }
}

/* What was sealed by us and is not sent yet comes first: another answer is the kernel's. */
static void test_what_waits_comes_first(void)
{
    struct end end = come(NULL);
    CHECK(tls_bio_say(&tls_of(end.conn)->bio, RECORD_DATA, (const uint8_t *)"first", 5));
    say(&end, long_answer, LONG_BYTES);
    CHECK(hear(&end, (const uint8_t *)"first", 5) == 0);
    CHECK(hear(&end, long_answer, LONG_BYTES) == 0);
    CHECK(tls_of(end.conn)->kernel != NULL);
    leave(&end);
}

static void want_keys(struct end *end, int wish)
{
    CHECK(SSL_key_update(end->ssl, wish) == 1 && SSL_do_handshake(end->ssl) == 1);
    heard = 0;
    for (int n = 0; n < 50 && is_there(end) && !end->conn->closed && heard == 0; n++) {
        SSL_write(end->ssl, "?", 1);
        turn();
    }
}

static void test_other_keys(void)
{
    struct end end = come(NULL);
    say(&end, long_answer, LONG_BYTES);
    CHECK(hear(&end, long_answer, LONG_BYTES) == 0);
    want_keys(&end, SSL_KEY_UPDATE_NOT_REQUESTED);
    CHECK(heard > 0);
    say(&end, long_answer, LONG_BYTES);
    CHECK(hear(&end, long_answer, LONG_BYTES) == 0);
    want_keys(&end, SSL_KEY_UPDATE_REQUESTED);
    CHECK(hear_the_end(&end) == SSL_AD_INTERNAL_ERROR);
    leave(&end);
    end = come(NULL);
    want_keys(&end, SSL_KEY_UPDATE_REQUESTED);
    say(&end, long_answer, LONG_BYTES);
    CHECK(hear(&end, long_answer, LONG_BYTES) == 0 && tls_of(end.conn)->kernel == NULL);
    want_keys(&end, SSL_KEY_UPDATE_REQUESTED);
    say(&end, "little", 6);
    CHECK(hear(&end, (const uint8_t *)"little", 6) == 0);
    leave(&end);
}

static void test_a_record_that_is_none(void)
{
    struct end end = come(NULL);
    say(&end, long_answer, LONG_BYTES);
    CHECK(hear(&end, long_answer, LONG_BYTES) == 0);
    CHECK(send(end.fd, "\x17\3\3\0\x12nothing of the kind", 23, MSG_NOSIGNAL) == 23);
    CHECK(hear_the_end(&end) == SSL_AD_BAD_RECORD_MAC);
    leave(&end);
}

/* So many records, and no other keys: who has its answers goes, and at last anybody. */
static void test_keys_have_an_end(void)
{
    struct end end = come(NULL);
    struct toy *toy = (struct toy *)end.conn;
    toy->engaged = true;
    tls_of(end.conn)->records_left = 1;
    say(&end, long_answer, LONG_BYTES);
    CHECK(hear(&end, long_answer, LONG_BYTES) == 0 && is_there(&end));
    CHECK(tls_of(end.conn)->kernel->records > KEY_RECORDS_MAX);
    toy->engaged = false;
    say(&end, "little", 6);
    CHECK(hear(&end, (const uint8_t *)"little", 6) == 0);
    CHECK(hear_the_end(&end) == SSL_AD_CLOSE_NOTIFY);
    leave(&end);
    end = come(NULL);
    ((struct toy *)end.conn)->engaged = true;
    say(&end, long_answer, LONG_BYTES);
    CHECK(hear(&end, long_answer, LONG_BYTES) == 0);
    tls_of(end.conn)->kernel->records = KERNEL_RECORDS_MAX;
    say(&end, "little", 6);
    CHECK(hear(&end, (const uint8_t *)"little", 6) == 0);
    CHECK(hear_the_end(&end) == SSL_AD_CLOSE_NOTIFY);
    leave(&end);
}

/* The kernel refuses a socket whose other end says nothing more. */
static void test_who_is_refused(void)
{
    struct end end = come(NULL);
    CHECK(shutdown(end.fd, SHUT_WR) == 0);
    for (int n = 0; !end.conn->peer_eof; n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
    say(&end, long_answer, LONG_BYTES);
    CHECK(tls_of(end.conn)->kernel == NULL && tls_of(end.conn)->kernel_tried);
    CHECK(hear(&end, long_answer, LONG_BYTES) == 0);
    leave(&end);
}

static void test_off(void)
{
    struct end end = come(NULL);
    loop.tls->kernel = false;
    say(&end, long_answer, LONG_BYTES);
    CHECK(hear(&end, long_answer, LONG_BYTES) == 0 && tls_of(end.conn)->kernel == NULL);
    loop.tls->kernel = true;
    leave(&end);
}

static void test_all(void)
{
    const char *error = NULL;
    char why[TLS_WHY_BYTES];
    struct tls_options tls = options_of(&broker, 1000);
    tls.kernel = true;
    loop = (struct loop){0};
    CHECK(loop_init(&loop, &owner, engine, &error));
    CHECK(tls_set(&loop, &tls, why));
    test_answers("TLS_AES_128_GCM_SHA256");
    test_answers("TLS_AES_256_GCM_SHA384");
    test_answers("TLS_CHACHA20_POLY1305_SHA256");
    test_ends();
    test_what_waits_comes_first();
    test_other_keys();
    test_a_record_that_is_none();
    test_keys_have_an_end();
    test_who_is_refused();
    test_off();
    loop_free(&loop);
    tls_free(&loop);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    if (!tls_kernel_is_there()) {
        fprintf(stderr, "nothing is tested: no TLS in this kernel: %s\n", strerror(errno));
        return 0;
    }
    for (size_t i = 0; i < LONG_BYTES; i++)
        long_answer[i] = (uint8_t)(i * 2654435761u >> 13);
    make_certificate(&broker, NULL, 30);
    CHECK((visitors = SSL_CTX_new(TLS_client_method())) != NULL);
    for (engine = 1; engine <= 2; engine++)
        if (engine_is_there(engine))
            test_all();
    SSL_CTX_free(visitors);
    made_free(&broker);
    return 0;
}
