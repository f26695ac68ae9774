/* A protocol of clients that is not HTTP is counted, shed and drained like it, and answered in its
 * own words: whoever admits, sheds and drains asks the table only. Real sockets, both engines. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/reactor.h"
#include "codec_testing.h"

#define TURNS_MAX 5000
#define NO_ROOM "-NOROOM\r\n"

/* ---- a protocol: 'w' is work that takes long, 'd' ends it, '?' is answered, other bytes are kept
 * until there are more than there ever will be ---- */

struct toy {
    struct guest guest;
    bool asked, works;
    char *room;
};

static uint32_t slimmed;

static struct toy *toy_of(const struct conn *conn) { return (struct toy *)conn; }

static void toy_opened(struct conn *conn)
{
    conn->kept = &conn_reactor(conn)->input_bytes;
    toy_of(conn)->room = malloc(100);
    admit_came(guest_of(conn));
}

static void toy_input(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct toy *toy = toy_of(conn);
    toy->asked = true;
    if (bytes[0] == '?')
        conn_write(conn, "!", 1);
    else if (bytes[0] == 'w' || bytes[0] == 'd')
        toy->works = bytes[0] == 'w';
    else if (!conn_keep(conn, bytes, len))
        conn_close(conn);
}

static enum engaged toy_engaged(const struct conn *conn)
{
    const struct toy *toy = toy_of(conn);
    return toy->works ? ENGAGED : toy->asked ? ENGAGED_NOT : ENGAGED_NEVER;
}

static size_t toy_holds(const struct conn *conn) { return toy_of(conn)->room != NULL ? 100 : 0; }

static void toy_slim(struct conn *conn)
{
    slimmed += toy_of(conn)->room != NULL;
    free(toy_of(conn)->room);
    toy_of(conn)->room = NULL;
}

static size_t toy_turned_away(const struct loop *loop, char *out, size_t capacity)
{
    CHECK(capacity >= sizeof NO_ROOM);
    memcpy(out, NO_ROOM, sizeof NO_ROOM - 1);
    return sizeof NO_ROOM - 1;
}

static void toy_resume(struct conn *conn) {}
static void toy_closed(struct conn *conn) { admit_gone(guest_of(conn)); }
static void toy_freed(struct conn *conn) { free(toy_of(conn)->room); }
static void toy_deadline(struct conn *conn, int64_t now_ms) {}

static const struct protocol toy_protocol = {
    .bytes = sizeof(struct toy), .clients = true, .engaged = toy_engaged, .holds = toy_holds,
    .slim = toy_slim, .turned_away = toy_turned_away, .opened = toy_opened, .input = toy_input,
    .resume = toy_resume, .closed = toy_closed, .freed = toy_freed, .deadline = toy_deadline};

/* ---- a worker that speaks it ---- */

static struct reactor *reactor;
static struct sockaddr_in at;
static int listener;

static void start(int engine, uint32_t connections_max, const struct protocol *protocol)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .session = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 1u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 1, .peers = 3,
        .connections_max = connections_max, .range_start = INT64_MIN, .engine = engine};
    const char *error;
    socklen_t len = sizeof at;
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    reactor = reactor_new(&options, &error);
    CHECK(reactor != NULL);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 64) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
    CHECK(loop_listen(&reactor->loop, listener, protocol, &plain_transport) == 0);
}

static void stop(void)
{
    reactor_free(reactor);
    close(listener);
}

static int dial(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
    return fd;
}

/* What the other end hears until it is ended, or until so much is there. */
static size_t hear(int fd, char *out, size_t most, bool *ended)
{
    size_t len = 0;
    *ended = false;
    for (int turn = 0; len < most && !*ended; turn++) {
        CHECK(turn < TURNS_MAX);
        reactor_run(reactor, 1000000);
        const ssize_t got = recv(fd, out + len, most - len, MSG_DONTWAIT);
        *ended = got == 0 || (got < 0 && errno == ECONNRESET);
        len += got > 0 ? (size_t)got : 0;
    }
    return len;
}

static void say(int fd, const char *bytes, size_t len)
{
    const uint64_t before = reactor->admission.connections;
    for (int turn = 0; len > 0; turn++) {
        CHECK(turn < TURNS_MAX && before <= reactor->options.connections_max);
        const ssize_t sent = send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0)
            bytes += sent, len -= (size_t)sent;
        reactor_run(reactor, 1000000);
    }
    for (int turn = 0; turn < 5; turn++)
        reactor_run(reactor, 1000000);
}

static int come(const char *said)
{
    char answer;
    bool ended;
    const int fd = dial();
    say(fd, "?", 1);
    CHECK(hear(fd, &answer, 1, &ended) == 1 && answer == '!');
    say(fd, said, strlen(said));
    return fd;
}

static void test_counted_and_answered_in_its_words(int engine)
{
    char words[64];
    bool ended;
    start(engine, 2, &toy_protocol);
    const int first = come("w"), second = come("w");
    CHECK(reactor->admission.connections == 2);
    int third = dial();
    CHECK(hear(third, words, sizeof words, &ended) == sizeof NO_ROOM - 1 && ended);
    CHECK(memcmp(words, NO_ROOM, sizeof NO_ROOM - 1) == 0 && reactor->admission.refused == 1);
    close(third);
    say(second, "d", 1); /* has all that it asked for: after a second it makes room */
    usleep(1100000);
    third = come("w");
    CHECK(reactor->admission.connections == 2 && reactor->admission.ousted == 1);
    CHECK(hear(second, words, 1, &ended) == 0 && ended);
    close(first), close(second), close(third);
    stop();
}

static void test_shed(int engine)
{
    static char many[200u << 10];
    char word;
    bool ended;
    start(engine, 10, &toy_protocol);
    memset(many, '.', sizeof many);
    const int small = come("."), first = come("."), second = come(".");
    slimmed = 0;
    say(first, many, sizeof many); /* half of a megabyte is the bound for all */
    CHECK(reactor->shed == 0);
    say(second, many, sizeof many);
    CHECK(reactor->shed >= 1 && slimmed == 3 && reactor->admission.connections < 3);
    say(small, "?", 1);
    CHECK(hear(small, &word, 1, &ended) == 1 && word == '!');
    close(small), close(first), close(second);
    stop();
}

static void test_drained(int engine)
{
    char word;
    bool ended;
    start(engine, 10, &toy_protocol);
    const int idle = come("d"), works = come("w"), silent = dial();
    for (int turn = 0; reactor->admission.connections < 3; turn++) {
        CHECK(turn < TURNS_MAX);
        reactor_run(reactor, 1000000);
    }
    reactor_drain(reactor);
    CHECK(hear(idle, &word, 1, &ended) == 0 && ended);
    CHECK(hear(silent, &word, 1, &ended) == 0 && ended);
    say(works, "?", 1);
    CHECK(hear(works, &word, 1, &ended) == 1 && reactor->admission.connections == 1);
    reactor_run(reactor, 1000000);
    CHECK(reactor_idle(reactor));
    conn_write(reactor->loop.conns, "!", 1); /* an answer that is not sent yet */
    CHECK(!reactor_idle(reactor));
    CHECK(hear(works, &word, 1, &ended) == 1);
    reactor_run(reactor, 1000000);
    CHECK(reactor_idle(reactor));
    close(idle), close(works), close(silent);
    stop();
}

/* HTTP would be no answer to another process, which waits for frames. */
static void test_nothing_is_said_to_processes(int engine)
{
    struct rlimit before, none;
    char words[64];
    bool ended;
    start(engine, 10, &peer_protocol);
    const int fd = dial(), top = dup(fd);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0 && top > 0);
    none = (struct rlimit){(rlim_t)top, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(hear(fd, words, sizeof words, &ended) == 0 && ended);
    CHECK(reactor->admission.refused == 1);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    close(top), close(fd);
    stop();
}

static void ticked(struct loop *loop, int64_t elapsed_us) {}

int main(void)
{
    static const struct loop_owner nobody = {.ticked = ticked};
    for (int engine = 1; engine <= 2; engine++) {
        const char *error = NULL;
        struct loop loop = {0};
        if (!loop_init(&loop, &nobody, engine, &error))
            continue; /* no io_uring here */
        loop_free(&loop);
        test_counted_and_answered_in_its_words(engine);
        test_shed(engine);
        test_drained(engine);
    }
    test_nothing_is_said_to_processes(2);
    return 0;
}
