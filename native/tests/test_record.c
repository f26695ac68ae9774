/* Records of TLS 1.3 that are ours, with OpenSSL at the other end: each cipher, either end, records
 * of any size, other keys; what is none; and what a worker does about it. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/reactor.h"
#include "codec_testing.h"
#include "loop/tls.h"
#include "loop/tls_bio.h"
#include "tests/tls_testing.h"
#include "tests/worker_testing.h"

#define TURNS_MAX 20000
#define SIZES_STEP 257

static struct made authority;
static uint64_t seed = 20261127;
static uint8_t said[3 * RECORD_BYTES], heard[3 * RECORD_BYTES];

struct end {
    SSL *ssl;
    struct tls_bio bio;
    uint32_t records_left;
};

static void end_new(struct end *end, SSL_CTX *context, bool client)
{
    *end = (struct end){.ssl = SSL_new(context), .records_left = KEY_RECORDS_MAX};
    CHECK(end->ssl != NULL && tls_bio_attach(end->ssl, &end->bio));
    if (client)
        SSL_set_connect_state(end->ssl);
    else
        SSL_set_accept_state(end->ssl);
}

static void end_free(struct end *end)
{
    SSL_free(end->ssl);
    tls_bio_end(&end->bio);
}

/* What one end has said, as its own piece of memory. */
static uint8_t *take(struct end *from, size_t *len)
{
    uint8_t *bytes = exact_copy(from->bio.next.bytes, from->bio.next.len);
    *len = from->bio.next.len;
    piece_drop(NULL, &from->bio.next);
    return bytes;
}

static void shake_with(struct end *end, struct end *other)
{
    size_t len;
    uint8_t *bytes = take(other, &len);
    end->bio.in = bytes;
    end->bio.in_len = len;
    const int done = SSL_do_handshake(end->ssl);
    CHECK(done == 1 || SSL_get_error(end->ssl, done) == SSL_ERROR_WANT_READ);
    if (end->bio.in_len > 0) /* tickets */
        CHECK(done == 1 && SSL_read(end->ssl, heard, 1) < 0);
    CHECK(end->bio.in_len == 0);
    free(bytes);
}

static SSL_CTX *context_of(bool client, const char *suite)
{
    char why[TLS_WHY_BYTES];
    struct tls_options options = options_of(&authority, 1);
    SSL_CTX *context = client ? SSL_CTX_new(TLS_client_method()) : tls_context_new(&options, why);
    CHECK(context != NULL && SSL_CTX_set_ciphersuites(context, suite) == 1);
    tls_bio_listen(context);
    return context;
}

/* ---- with OpenSSL at the other end ---- */

/* OpenSSL hears what we have sealed. */
static void check_sealed(struct end *ours, struct end *theirs, size_t len)
{
    size_t wire, have = 0;
    CHECK(tls_bio_seal(NULL, &ours->bio, said, len, &ours->records_left));
    uint8_t *bytes = take(ours, &wire);
    theirs->bio.in = bytes;
    theirs->bio.in_len = wire;
    for (int got; (got = SSL_read(theirs->ssl, heard + have, (int)(sizeof heard - have))) > 0;)
        have += (size_t)got;
    CHECK(theirs->bio.in_len == 0 && have == len && memcmp(said, heard, len) == 0);
    free(bytes);
}

/* We hear what OpenSSL has sealed, and follow it to other keys. */
static void check_opened(struct end *ours, struct end *theirs, size_t len)
{
    size_t wire, have = 0;
    CHECK(SSL_write(theirs->ssl, said, (int)len) == (int)len);
    uint8_t *bytes = take(theirs, &wire);
    for (size_t at = 0, record, got; at < wire; at += record) {
        record = record_len(bytes + at);
        CHECK(record > 0 && record <= wire - at);
        uint8_t *copy = exact_copy(bytes + at, record);
        uint8_t *room = exact_copy(copy, record_room(record));
        uint8_t *out = at % 2 == 0 ? room : copy + RECORD_HEAD_BYTES; /* where it lies, too */
        const int kind = record_open(&ours->bio.heard, copy, record, out, &got);
        CHECK(kind == RECORD_DATA || kind == RECORD_HANDSHAKE);
        if (kind == RECORD_HANDSHAKE) {
            CHECK(got == 5 && out[0] == SSL3_MT_KEY_UPDATE);
            CHECK(record_renew(&ours->bio.heard));
        } else {
            memcpy(heard + have, out, got);
            have += got;
        }
        free(room);
        free(copy);
    }
    CHECK(have == len && memcmp(said, heard, len) == 0);
    free(bytes);
}

static void test_both_ways(const char *suite, bool client, size_t padded)
{
    SSL_CTX *contexts[2] = {context_of(client, suite), context_of(!client, suite)};
    struct end ours, theirs;
    end_new(&ours, contexts[0], client);
    end_new(&theirs, contexts[1], !client);
    SSL_set_block_padding(theirs.ssl, padded);
    SSL_set_num_tickets(client ? theirs.ssl : ours.ssl, client ? 0 : 3);
    for (int n = 0; n < 4; n++) {
        shake_with(client ? &ours : &theirs, client ? &theirs : &ours);
        shake_with(client ? &theirs : &ours, client ? &ours : &theirs);
    }
    CHECK(strcmp(SSL_get_cipher_name(ours.ssl), suite) == 0);
    CHECK(tls_bio_take_over(ours.ssl, &ours.bio));
    CHECK(ours.bio.said.number == (client ? 0 : 3)); /* the tickets, which only that end sends */
    SSL_free(ours.ssl);
    ours.ssl = NULL;
    for (size_t len = 1; len <= sizeof said; len += 1 + random_next(&seed) % SIZES_STEP) {
        check_sealed(&ours, &theirs, len);
        check_opened(&ours, &theirs, len);
        if (random_next(&seed) % 16 == 0)
            ours.records_left = 0;
        if (random_next(&seed) % 16 == 0)
            CHECK(SSL_key_update(theirs.ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    }
    end_free(&ours);
    end_free(&theirs);
    SSL_CTX_free(contexts[0]);
    SSL_CTX_free(contexts[1]);
}

/* ---- what is none ---- */

static struct end met[2]; /* both ours: the client, the server */

static void meet(void)
{
    SSL_CTX *contexts[2] = {context_of(true, "TLS_AES_128_GCM_SHA256"),
                            context_of(false, "TLS_AES_128_GCM_SHA256")};
    for (int i = 0; i < 2; i++)
        end_new(&met[i], contexts[i], i == 0);
    for (int n = 0; n < 4; n++) {
        shake_with(&met[0], &met[1]);
        shake_with(&met[1], &met[0]);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(tls_bio_take_over(met[i].ssl, &met[i].bio));
        SSL_CTX_free(contexts[i]);
    }
}

static void part(void)
{
    end_free(&met[0]);
    end_free(&met[1]);
}

/* What the server takes a record for that the client has sealed, with one bit of it changed. */
static int opened(int kind, const uint8_t *bytes, size_t len, size_t bit, size_t *got)
{
    uint8_t record[100];
    const size_t wire = len + RECORD_ADDED_BYTES;
    CHECK(wire <= sizeof record);
    struct record_keys *keys = &met[0].bio.said;
    CHECK(record_seal(keys, (enum record_kind)kind, bytes, len, record));
    if (bit < 8 * wire)
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
    met[1].bio.heard.number = keys->number - 1; /* whatever came of the last */
    if (record_len(record) != wire)
        return 0;
    uint8_t *copy = exact_copy(record, wire), *out = copy + RECORD_HEAD_BYTES;
    const int found = record_open(&met[1].bio.heard, copy, wire, out, got);
    if (found > 0)
        memcpy(heard, out, *got);
    free(copy);
    return found;
}

static void test_what_is_none(void)
{
    static const uint8_t padded[] = {'a', 0, RECORD_DATA, 0, 0, 0}, zeros[9];
    const size_t wire = 2 + RECORD_ADDED_BYTES;
    size_t got = 0;
    meet();
    CHECK(opened(RECORD_DATA, padded, 2, SIZE_MAX, &got) == RECORD_DATA && got == 2);
    for (size_t bit = 0; bit < 8 * wire; bit++) {
        const int found = opened(RECORD_DATA, padded, 2, bit, &got);
        CHECK(found == 0 || found == -SSL_AD_BAD_RECORD_MAC);
        CHECK((found == 0) == (bit < 8 || (bit >= 24 && bit < 40))); /* its kind, its length */
    }
    CHECK(opened(0, padded, sizeof padded, SIZE_MAX, &got) == RECORD_DATA && got == 2);
    CHECK(heard[0] == 'a' && heard[1] == 0);
    CHECK(opened(0, zeros, sizeof zeros, SIZE_MAX, &got) == -SSL_AD_UNEXPECTED_MESSAGE);
    uint8_t again[2 + RECORD_ADDED_BYTES]; /* one that came before, and one too early */
    CHECK(record_seal(&met[0].bio.said, RECORD_DATA, padded, 2, again));
    met[1].bio.heard.number = met[0].bio.said.number;
    CHECK(record_open(&met[1].bio.heard, again, sizeof again, heard, &got) ==
          -SSL_AD_BAD_RECORD_MAC);
    uint8_t little[RECORD_HEAD_BYTES + RECORD_TAG_BYTES] = {RECORD_DATA, 3, 3, 0, 16};
    CHECK(record_open(&met[1].bio.heard, little, sizeof little, heard, &got) ==
          -SSL_AD_BAD_RECORD_MAC);
    const uint8_t most[] = {RECORD_DATA, 3, 3, 0x41, 0}, more[] = {RECORD_DATA, 3, 3, 0x41, 1};
    CHECK(record_len(most) == RECORD_WIRE_MAX && record_len(more) == 0);
    struct record_keys none = {0};
    CHECK(!record_secret(&none, "") && !record_secret(&none, "0g") && none.secret_len == 0);
    part();
}

/* ---- a worker that hears them ---- */

static struct reactor *reactor;

static uint64_t come(int *fd)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    struct conn *conn = loop_adopt(&reactor->loop, ends[0], &client_protocol, &tls_transport);
    CHECK(conn != NULL);
    reactor->admission.connections++;
    *fd = ends[1];
    return conn_id(conn);
}

static void say(struct end *end, int fd, size_t step)
{
    const struct piece *said_ = &end->bio.next;
    for (size_t at = 0; at < said_->len; at += step) {
        const size_t len = said_->len - at < step ? said_->len - at : step;
        if (write(fd, said_->bytes + at, len) < 0) /* it has heard enough */
            break;
        reactor_run(reactor, 0);
    }
    piece_drop(NULL, &end->bio.next);
}

static void hear(struct end *end, int fd)
{
    static uint8_t bytes[20000];
    reactor_run(reactor, 0);
    const ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    end->bio.in = bytes;
    end->bio.in_len = got > 0 ? (size_t)got : 0;
}

static void shake_worker(struct end *end, int fd)
{
    SSL_CTX *context = context_of(true, "TLS_AES_128_GCM_SHA256");
    end_new(end, context, true);
    SSL_CTX_free(context);
    for (int n = 0; SSL_do_handshake(end->ssl) != 1; n++) {
        CHECK(n < TURNS_MAX);
        say(end, fd, SIZE_MAX / 2);
        hear(end, fd);
    }
    say(end, fd, SIZE_MAX / 2);
    CHECK(SSL_has_pending(end->ssl) == 0 && tls_bio_take_over(end->ssl, &end->bio));
}

/* What the last record says that came, if it is an alert; before it came a ticket. */
static int last_alert(struct end *end, int fd, uint64_t id)
{
    int alert = -1;
    for (int n = 0; loop_conn(&reactor->loop, id) != NULL; n++) {
        CHECK(n < TURNS_MAX);
        reactor_run(reactor, 1000000);
    }
    hear(end, fd);
    for (size_t at = 0, len, got; at < end->bio.in_len; at += len) {
        len = record_len(end->bio.in + at);
        CHECK(len > 0 && len <= end->bio.in_len - at);
        const int kind = record_open(&end->bio.heard, end->bio.in + at, len, heard, &got);
        CHECK(kind > 0);
        alert = kind == RECORD_ALERT ? heard[1] : -1;
    }
    return alert;
}

#define FILLED 256 /* the last byte of what is said that is not 0 is its kind */

struct wrong {
    int kind; /* 0: in plain */
    const char *bytes;
    size_t len;
    int alert, times;
};

static void test_a_worker(int engine)
{
    static const struct wrong all[] = {
        {RECORD_HANDSHAKE, "\x18\0\0\1\2", 5, SSL_AD_UNEXPECTED_MESSAGE, 1}, /* no such wish */
        {RECORD_HANDSHAKE, "\x18\0\0\2", 4, SSL_AD_UNEXPECTED_MESSAGE, 1},
        {RECORD_HANDSHAKE, "\x18\0\0\1", 4, SSL_AD_UNEXPECTED_MESSAGE, 2}, /* 8 of 5 bytes */
        {RECORD_HANDSHAKE, "\x18\0\0\1\0\0", 6, SSL_AD_UNEXPECTED_MESSAGE, 1},
        {RECORD_HANDSHAKE, "\4\0\0\1\0", 5, SSL_AD_UNEXPECTED_MESSAGE, 1},
        {RECORD_ALERT, "\2\x28\0", 3, SSL_AD_DECODE_ERROR, 1},
        {RECORD_ALERT, "\2\x28", 2, -1, 1}, /* its word is the last */
        {RECORD_ALERT, "\1\x5a", 2, SSL_AD_UNEXPECTED_MESSAGE, 33},
        {24, "x", 1, SSL_AD_UNEXPECTED_MESSAGE, 1},
        {20, "\1", 1, SSL_AD_UNEXPECTED_MESSAGE, 1},
        {FILLED, "\x17\0", 2, SSL_AD_UNEXPECTED_MESSAGE, 33}, /* nothing, again and again */
        {FILLED, "\x16\0\0", 3, SSL_AD_UNEXPECTED_MESSAGE, 1},
        {FILLED, "\x15\0", 2, SSL_AD_DECODE_ERROR, 1},
        {FILLED, "\0\0\0", 3, SSL_AD_UNEXPECTED_MESSAGE, 1},
        {0, "\x17\3\3\0\x12nothing of the kind", 23, SSL_AD_BAD_RECORD_MAC, 1},
        {0, "\x17\3\3\x41\1", 5, SSL_AD_RECORD_OVERFLOW, 1},
        {0, "\x15\3\3\0\2\1", 6, SSL_AD_UNEXPECTED_MESSAGE, 1}, /* an end that anybody may say */
        {0, "GET / HTTP/1.1", 14, SSL_AD_UNEXPECTED_MESSAGE, 1},
    };
    const size_t steps[] = {SIZE_MAX / 2, 1, 7};
    reactor = worker_new(engine, &authority);
    for (size_t i = 0; i < 3 * sizeof all / sizeof *all; i++) {
        const struct wrong *w = &all[i / 3];
        int fd;
        struct end end;
        const uint64_t id = come(&fd);
        shake_worker(&end, fd);
        const uint64_t failed = tls_figures(&reactor->loop)->failed;
        for (int n = 0; n < w->times; n++) {
            CHECK(loop_conn(&reactor->loop, id) != NULL);
            if (w->kind != 0)
                CHECK(tls_bio_say(&end.bio, (enum record_kind)w->kind, (const uint8_t *)w->bytes,
                                  w->len));
            else
                CHECK(piece_add(NULL, &end.bio.next, (const uint8_t *)w->bytes, w->len, 1000));
            say(&end, fd, steps[i % 3]);
        }
        const int alert = last_alert(&end, fd, id);
        if (alert != w->alert)
            fprintf(stderr, "%zu: alert %d\n", i / 3, alert);
        CHECK(alert == w->alert && tls_figures(&reactor->loop)->failed == failed + 1);
        CHECK(reactor->input_bytes == 0); /* a part of a record too is given back */
        close(fd);
        end_free(&end);
    }
    worker_free(reactor);
}

/* Other keys, a record for each byte; something else comes before the byte `at`. */
static void say_update(struct end *end, int fd, uint8_t wish, const struct wrong *between, int at)
{
    const uint8_t update[] = {SSL3_MT_KEY_UPDATE, 0, 0, 1, wish};
    for (int i = 0; i < 5; i++) {
        if (between != NULL && i == at)
            CHECK(tls_bio_say(&end->bio, (enum record_kind)between->kind,
                              (const uint8_t *)between->bytes, between->len));
        CHECK(tls_bio_say(&end->bio, RECORD_HANDSHAKE, update + i, 1));
        say(end, fd, 7);
    }
}

/* Which kinds came, in the order they came, a letter each; the keys are followed. */
static void kinds_heard(struct end *end, int fd, char *kinds)
{
    hear(end, fd);
    for (size_t at = 0, len, got; at < end->bio.in_len; at += len) {
        len = record_len(end->bio.in + at);
        CHECK(len > 0 && len <= end->bio.in_len - at);
        const int kind = record_open(&end->bio.heard, end->bio.in + at, len, heard, &got);
        const bool renews = kind == RECORD_HANDSHAKE && heard[0] == SSL3_MT_KEY_UPDATE;
        CHECK(kind > 0 && (!renews || record_renew(&end->bio.heard)));
        *kinds++ = kind == RECORD_DATA ? 'd' : kind == RECORD_ALERT ? 'a' : renews ? 'k' : 't';
    }
    *kinds = 0;
}

/* Other keys may be told in parts: then they are the ones, and an answer has its own as well. */
static void test_an_update_in_parts(int engine)
{
    int fd;
    struct end end;
    char kinds[100];
    reactor = worker_new(engine, &authority);
    const uint64_t id = come(&fd);
    shake_worker(&end, fd);
    kinds_heard(&end, fd, kinds);
    for (int n = 0; n < 20; n++) {
        say_update(&end, fd, n % 2, NULL, 0);
        CHECK(record_renew(&end.bio.said));
        CHECK(tls_bio_say(&end.bio, RECORD_DATA, (const uint8_t *)"\r\n", 2));
        say(&end, fd, 11);
        CHECK(loop_conn(&reactor->loop, id) != NULL);
        kinds_heard(&end, fd, kinds);
        CHECK(strcmp(kinds, n % 2 == 1 ? "k" : "") == 0);
    }
    close(fd);
    end_free(&end);
    worker_free(reactor);
}

/* Nothing comes between the parts but the end. */
static void test_between_the_parts(int engine)
{
    static const struct wrong all[] = {
        {RECORD_DATA, "x", 1, SSL_AD_UNEXPECTED_MESSAGE, 0},
        {FILLED, "\x17\0", 2, SSL_AD_UNEXPECTED_MESSAGE, 0},
        {RECORD_HANDSHAKE, "\x18", 1, SSL_AD_UNEXPECTED_MESSAGE, 0},
        {FILLED, "\x16\0", 2, SSL_AD_UNEXPECTED_MESSAGE, 0},
        {RECORD_ALERT, "\1\0", 2, SSL_AD_CLOSE_NOTIFY, 0},
        {RECORD_ALERT, "\2\x28", 2, -1, 0},
    };
    reactor = worker_new(engine, &authority);
    for (size_t i = 0; i < 4 * sizeof all / sizeof *all; i++) {
        int fd;
        struct end end;
        const uint64_t id = come(&fd);
        shake_worker(&end, fd);
        say_update(&end, fd, 0, &all[i / 4], 1 + (int)(i % 4));
        const int alert = last_alert(&end, fd, id);
        if (alert != all[i / 4].alert)
            fprintf(stderr, "%zu: alert %d\n", i, alert);
        CHECK(alert == all[i / 4].alert);
        close(fd);
        end_free(&end);
    }
    worker_free(reactor);
}

/* What a record in parts took is given back when it is whole. */
static void test_parts_cost_nothing_afterwards(int engine)
{
    int fd;
    struct end end;
    reactor = worker_new(engine, &authority);
    const uint64_t id = come(&fd);
    shake_worker(&end, fd);
    CHECK(tls_bio_say(&end.bio, RECORD_DATA, (const uint8_t *)"\r\n", 2));
    const size_t len = end.bio.next.len--;
    say(&end, fd, 7);
    CHECK(loop_conn(&reactor->loop, id)->wire_bytes >= len - 1);
    CHECK(loop_conn(&reactor->loop, id)->wire_bytes <= 1024);
    CHECK(write(fd, "x", 1) == 1); /* not what the last byte was */
    CHECK(last_alert(&end, fd, id) == SSL_AD_BAD_RECORD_MAC && reactor->input_bytes == 0);
    close(fd);
    end_free(&end);
    const uint64_t other = come(&fd);
    shake_worker(&end, fd);
    for (int n = 0; n < 50; n++) {
        CHECK(tls_bio_say(&end.bio, RECORD_DATA, (const uint8_t *)"\r\n", 2));
        say(&end, fd, 7);
        CHECK(loop_conn(&reactor->loop, other)->wire_bytes == 0);
    }
    close(fd);
    end_free(&end);
    worker_free(reactor);
}

/* Its records are opened into it, whatever their size, and where they were cut. */
static void test_a_body(int engine, size_t step)
{
    static const char head[] = "POST /v1/topic/t/messages HTTP/1.1\r\nHost: h\r\n"
                               "Content-Length: 40000\r\n\r\n";
    int fd;
    struct end end;
    reactor = worker_new(engine, &authority);
    const uint64_t id = come(&fd);
    shake_worker(&end, fd);
    CHECK(tls_bio_say(&end.bio, RECORD_DATA, (const uint8_t *)head, sizeof head - 1));
    say(&end, fd, step);
    for (size_t at = 0, len; at < 39000; at += len) {
        len = 1 + random_next(&seed) % (at < 3000 ? 10 : RECORD_BYTES);
        len = len < 39000 - at ? len : 39000 - at;
        CHECK(tls_bio_say(&end.bio, RECORD_DATA, said + at, len));
        say(&end, fd, step);
        const struct body *body = client_of(loop_conn(&reactor->loop, id))->request.body;
        CHECK(body != NULL && body->len == at + len && memcmp(body->data, said, at + len) == 0);
    }
    CHECK(tls_bio_say(&end.bio, RECORD_DATA, said, 1000));
    say(&end, fd, step);
    CHECK(client_of(loop_conn(&reactor->loop, id))->request.body == NULL);
    close(fd);
    end_free(&end);
    worker_free(reactor);
}

int main(void)
{
    static const char *const suites[] = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
                                         "TLS_CHACHA20_POLY1305_SHA256"};
    signal(SIGPIPE, SIG_IGN);
    make_certificate(&authority, NULL, 30);
    for (size_t i = 0; i < sizeof said; i++)
        said[i] = (uint8_t)random_next(&seed);
    for (int i = 0; i < 6; i++)
        test_both_ways(suites[i / 2], i % 2, i % 2 == 0 ? 0 : 512);
    test_what_is_none();
    for (int engine = 1; engine <= 2; engine++)
        if (engine_is_there(engine)) {
            test_a_worker(engine);
            test_an_update_in_parts(engine);
            test_between_the_parts(engine);
            test_parts_cost_nothing_afterwards(engine);
            test_a_body(engine, SIZE_MAX / 2);
            test_a_body(engine, 1000);
        }
    made_free(&authority);
    return 0;
}
