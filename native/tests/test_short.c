/* What is short: buffers to receive into, and connections. Real sockets; what Python does between
 * two stays of the loop is done by hand. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/reactor.h"
#include "core/client.h"
#include "codec_testing.h"
#include "loop/transport.h"

#define MANY 140 /* more than there are little buffers */
#define WORD 5u
#define TURNS_MAX 200
#define IDLE_US 20000 /* longer than who has just come may be silent */

static uint64_t kept;
static size_t received;

static void on_opened(struct conn *conn)
{
    conn->wary = true;
    conn->kept = &kept;
}

static void on_input(struct conn *conn, const uint8_t *bytes, size_t len) { received += len; }
static void nothing(struct conn *conn) {}
static void no_deadline(struct conn *conn, int64_t now_ms) {}
static void on_ticked(struct loop *loop, int64_t elapsed_us) {}
static void on_accepted(struct loop *loop, struct listener *listener, int fd) {}
static void on_failed(struct loop *loop, struct listener *listener, int error) {}

static const struct loop_owner owner = {on_ticked, on_accepted, on_failed};
static const struct protocol listening = {
    .bytes = sizeof(struct conn), .opened = on_opened, .input = on_input, .resume = nothing,
    .closed = nothing, .freed = nothing, .deadline = no_deadline};

static void turns(struct loop *loop, size_t want)
{
    for (int turn = 0; turn < TURNS_MAX && received < want; turn++) {
        loop_wait(loop, 1000000);
        loop_tend(loop);
    }
    CHECK(received == want);
}

/* It finds no buffer, and is told to stop before anybody has seen that. */
static void test_who_is_paused_while_buffers_are_short(void)
{
    struct loop loop = {0};
    const char *error = NULL;
    int ends[MANY][2];
    struct conn *conn = NULL;
    if (!loop_init(&loop, &owner, 1, &error))
        return; /* no io_uring here */
    for (int i = 0; i < MANY; i++) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends[i]) == 0);
        CHECK(write(ends[i][1], "hello", WORD) == WORD);
        conn = loop_adopt(&loop, ends[i][0], &listening, &plain_transport);
        CHECK(conn != NULL);
    }
    loop.net->submit(loop.net);
    conn->paused = true;
    conn_mark_dirty(conn);
    loop_tend(&loop);
    turns(&loop, (MANY - 1) * WORD);
    CHECK(!conn->closed);
    conn->paused = false;
    conn_mark_dirty(conn);
    loop_tend(&loop);
    turns(&loop, MANY * WORD);
    loop_free(&loop);
    for (int i = 0; i < MANY; i++)
        close(ends[i][1]);
}

/* All are from one address and idle: each newcomer replaces one of its own. */
static void test_a_lone_address_replaces_its_own(uint32_t most)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .session = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 4u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 1, .peers = 3,
        .connections_max = most, .range_start = INT64_MIN, .auto_create = true, .engine = 2};
    const char *error;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fds[32];
    struct reactor *reactor = reactor_new(&options, &error);
    CHECK(reactor != NULL && most < 32);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 64) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
    CHECK(loop_listen(&reactor->loop, listener, &client_protocol, &plain_transport) == 0);
    for (uint32_t i = 0; i <= most; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fds[i], (struct sockaddr *)&at, len) == 0);
        const struct admission *admission = &reactor->admission;
        for (int turn = 0; reactor->loop.connections_total + admission->refused <= i; turn++) {
            CHECK(turn < TURNS_MAX);
            reactor_run(reactor, 1000000);
        }
        usleep(IDLE_US);
    }
    CHECK(reactor->admission.refused == 0 && reactor->admission.ousted >= 1);
    for (uint32_t i = 0; i <= most; i++)
        close(fds[i]);
    reactor_free(reactor);
    close(listener);
}

int main(void)
{
    test_who_is_paused_while_buffers_are_short();
    for (uint32_t most = 1; most <= 16; most++)
        test_a_lone_address_replaces_its_own(most);
    return 0;
}
