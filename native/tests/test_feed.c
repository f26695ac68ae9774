/* Feeds and listeners, over real sockets: what is pushed is heard by each, once and in order; what
 * a slow one still sends is not freed; who falls behind is told where; all of it has a bound. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/feed.h"
#include "broker/reactor.h"
#include "broker/slots.h"
#include "codec_testing.h"

#define TURNS_MAX 20000
#define SLOW_MAX 96

static struct reactor *reactor;
static struct sockaddr_in at;
static int listener;

static void start(int engine)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .session = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 64u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 1, .peers = 3,
        .connections_max = 120, .range_start = INT64_MIN, .engine = engine};
    const char *error;
    socklen_t len = sizeof at;
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    reactor = reactor_new(&options, &error);
    CHECK(reactor != NULL);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const int small = 32 << 10; /* inherited by those that are accepted */
    CHECK(setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 64) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
    CHECK(loop_listen(&reactor->loop, listener, &client_protocol, &plain_transport) == 0);
}

static void stop(void)
{
    reactor_free(reactor);
    close(listener);
}

/* ---- what the upper layer does ---- */

static uint32_t gone, sent, behind;
static char behind_id[64];

static void take_news(uint64_t *request)
{
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        struct upcall *up = &reactor->upcalls[i];
        if (up->kind == UPCALL_REQUEST && request != NULL)
            *request = up->id;
        if (up->kind == UPCALL_HEARER) {
            gone += up->status == HEARER_GONE;
            sent += up->status == HEARER_SENT;
            behind += up->status == HEARER_BEHIND;
            CHECK(up->head_len < sizeof behind_id);
            if (up->status == HEARER_BEHIND)
                snprintf(behind_id, sizeof behind_id, "%.*s", (int)up->head_len,
                         (const char *)up->head);
        }
        free(up->head);
        if (up->body != NULL)
            body_release(up->body);
    }
    reactor->upcall_count = 0;
}

static void turn(void)
{
    reactor_run(reactor, 100000);
    take_news(NULL);
}

/* A client that asks, with something behind it in one piece, and is a listener then. */
static struct conn *come_with(int *fd, const char *behind_it)
{
    char ask[256];
    const int ask_len = snprintf(ask, sizeof ask, "GET /e HTTP/1.1\r\nHost: localhost\r\n\r\n%s",
                                 behind_it);
    static const char kind[] = "Content-Type: text/event-stream\r\n";
    const int small = 16 << 10;
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(*fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(connect(*fd, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(send(*fd, ask, (size_t)ask_len, 0) == ask_len);
    uint64_t request = 0;
    for (int n = 0; request == 0; n++) {
        CHECK(n < TURNS_MAX);
        reactor_run(reactor, 100000);
        uint64_t news = 0;
        take_news(&news);
        request = request == 0 ? news : request;
    }
    struct conn *conn = loop_conn(&reactor->loop, request >> 24);
    CHECK(conn != NULL && hearer_begin(conn, request));
    struct slot *slot = conn_slot(conn, client_of(conn)->slot_first);
    struct output *headers = output_new(sizeof kind);
    memcpy(headers->own, kind, sizeof kind - 1);
    headers->len = sizeof kind - 1;
    slot->kind = SLOT_STREAM;
    slot->status = 200;
    slot->first = slot->last = headers;
    conn_answer(conn, slot);
    return conn;
}

static struct conn *come(int *fd) { return come_with(fd, ""); }

static uint32_t pushed; /* events so far */

/* An event whose number is its id, of so many bytes in all. */
static bool push(int feed, size_t len)
{
    char *text = malloc(len + 1), id[16];
    const int head = snprintf(text, len, "id: %u\ndata: ", pushed + 1);
    CHECK(head > 0 && (size_t)head + 2 < len);
    memset(text + head, 'x', len - (size_t)head - 2);
    memcpy(text + len - 2, "\n\n", 2);
    const int id_len = snprintf(id, sizeof id, "%u", pushed);
    const bool pushes = feed_push(reactor, (uint32_t)feed, id, (size_t)id_len,
                                  (const uint8_t *)text, len);
    pushed += pushes;
    free(text);
    return pushes;
}

/* Reads what there is; counts events, which have to follow each other from `*next` on. */
struct reader {
    char line[64];
    size_t in_line;
    uint32_t next; /* 0: the first one may be any */
    bool ended;
};

static void read_some(int fd, struct reader *reader)
{
    static char bytes[1 << 16];
    const ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    reader->ended |= got == 0 || (got < 0 && errno == ECONNRESET);
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] != '\n') {
            if (reader->in_line < sizeof reader->line - 1)
                reader->line[reader->in_line++] = bytes[i];
            continue;
        }
        reader->line[reader->in_line] = 0;
        reader->in_line = 0;
        unsigned number;
        if (sscanf(reader->line, "id: %u", &number) != 1)
            continue;
        CHECK(reader->next == 0 || number == reader->next);
        reader->next = number + 1;
    }
}

static void read_until(int fd, struct reader *reader, uint32_t next)
{
    for (int n = 0; reader->next != next; n++) {
        CHECK(n < TURNS_MAX && !reader->ended);
        turn();
        read_some(fd, reader);
    }
}

/* ---- tests ---- */

static void test_all_hear_all_and_join_where_it_is_kept(void)
{
    int fds[3];
    struct conn *conns[3];
    struct reader readers[3] = {{.next = 1}, {.next = 1}, {.next = 0}};
    const int feed = feed_open(reactor, "0", 1);
    CHECK(feed >= 0);
    for (int i = 0; i < 2; i++) {
        conns[i] = come(&fds[i]);
        CHECK(hearer_join(conns[i], (uint32_t)feed, 0));
    }
    /* Round and round: several times what it keeps, in pieces that end anywhere in a body. */
    uint64_t places[1200];
    for (uint32_t n = 0; n < 1200; n++) {
        places[n] = feed_end(feed_at(reactor, feed));
        CHECK(push(feed, 700 + 13 * (n % 50)));
        if (n % 10 == 9)
            for (int i = 0; i < 2; i++)
                read_until(fds[i], &readers[i], pushed + 1);
    }
    const struct feed *known = feed_at(reactor, feed);
    CHECK(feed_end(known) > 4 * FEED_BYTES);
    CHECK(feed_end(known) - known->first->base >= FEED_BYTES);
    CHECK(feed_end(known) - known->first->base < FEED_BYTES + 2 * FEED_BODY_BYTES);
    CHECK(reactor->feeds->bytes < FEED_BYTES + 6 * FEED_BODY_BYTES); /* nobody holds the others */
    CHECK(behind == 0 && gone == 0);
    conns[2] = come(&fds[2]);
    uint32_t kept = 0;
    while (places[kept] < known->first->base) {
        CHECK(!hearer_join(conns[2], (uint32_t)feed, places[kept]));
        kept++;
    }
    CHECK(!hearer_join(conns[2], (uint32_t)feed, feed_end(known) + 1));
    CHECK(!hearer_join(conns[2], FEEDS_MAX, 0) && kept > 0);
    readers[2].next = kept + 3 + 1;
    CHECK(hearer_join(conns[2], (uint32_t)feed, places[kept + 3]));
    read_until(fds[2], &readers[2], pushed + 1);
    CHECK(push(feed, 100));
    for (int i = 0; i < 3; i++)
        read_until(fds[i], &readers[i], pushed + 1);
    feed_close(reactor, (uint32_t)feed);
    for (int i = 0; i < 3; i++) {
        for (int n = 0; !readers[i].ended; n++) {
            CHECK(n < TURNS_MAX);
            turn();
            read_some(fds[i], &readers[i]);
        }
        close(fds[i]);
    }
    CHECK(gone == 3 && reactor->feeds->hearers == 0 && reactor->feeds->bytes == 0);
}

static void test_a_slow_one_sends_what_it_began_and_is_told_where_it_is(void)
{
    int fd;
    struct reader reader = {.next = pushed + 1};
    const int feed = feed_open(reactor, "0", 1);
    struct conn *conn = come(&fd);
    CHECK(hearer_join(conn, (uint32_t)feed, 0));
    for (uint32_t n = 0; n < 2000; n++) {
        CHECK(push(feed, 1000));
        if (n % 20 == 0)
            turn();
    }
    CHECK(feed_at(reactor, feed)->hearers == 1 && behind == 0); /* it has begun with old text */
    while (behind == 0) {
        turn();
        read_some(fd, &reader);
    }
    CHECK(feed_at(reactor, feed)->hearers == 0 && client_of(conn)->hearer->feed == NULL);
    for (int n = 0; n < 100; n++) {
        turn();
        read_some(fd, &reader);
    }
    /* The place is the last event that it has. */
    CHECK(reader.next < pushed && (uint32_t)atoi(behind_id) + 1 == reader.next);
    CHECK(reactor->feeds->bytes < FEED_BYTES + 4 * FEED_BODY_BYTES);
    /* What was read for it alone, and then the feed again. */
    static char alone[200000];
    size_t len = 0;
    for (uint32_t number = reader.next; number <= pushed && len + 32 < sizeof alone; number++)
        len += (size_t)sprintf(alone + len, "id: %u\ndata: \n\n", number);
    hearer_write(conn, (const uint8_t *)alone, len);
    read_until(fd, &reader, pushed + 1);
    for (int n = 0; n < 5; n++)
        turn();
    CHECK(sent == 1);
    CHECK(hearer_join(conn, (uint32_t)feed, feed_end(feed_at(reactor, feed))));
    CHECK(push(feed, 50));
    read_until(fd, &reader, pushed + 1);
    close(fd);
    const uint32_t before = gone;
    for (int n = 0; gone == before; n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
    CHECK(feed_at(reactor, feed)->hearers == 0);
    feed_close(reactor, (uint32_t)feed);
    CHECK(reactor->feeds->bytes == 0);
}

/* More than are served in a turn, and something new in each: nobody has two turns while another
 * waits for one. */
static void test_each_has_its_turn_before_anybody_has_another(void)
{
    enum { MANY = HEARERS_PER_TURN + 26, TURNS = 600 };
    int fds[MANY];
    struct conn *conns[MANY];
    struct reader readers[MANY];
    int64_t served[MANY];
    uint32_t turns[MANY], least = 0;
    const int feed = feed_open(reactor, "0", 1);
    for (int i = 0; i < MANY; i++) {
        conns[i] = come(&fds[i]);
        readers[i] = (struct reader){.next = pushed + 1};
        served[i] = turns[i] = 0;
        CHECK(hearer_join(conns[i], (uint32_t)feed, 0));
    }
    for (int n = 0; n < TURNS; n++) {
        uint32_t most = 0;
        CHECK(push(feed, 40));
        reactor_run(reactor, 0); /* one turn of the loop */
        take_news(NULL);
        least = UINT32_MAX;
        for (int i = 0; i < MANY; i++) {
            const struct hearer *hearer = client_of(conns[i])->hearer;
            CHECK(hearer != NULL && hearer->feed != NULL);
            turns[i] += hearer->served_us != served[i];
            served[i] = hearer->served_us;
            most = turns[i] > most ? turns[i] : most;
            least = turns[i] < least ? turns[i] : least;
            read_some(fds[i], &readers[i]);
        }
        CHECK(most - least <= 1);
    }
    CHECK(least > 10);
    feed_close(reactor, (uint32_t)feed);
    for (int i = 0; i < MANY; i++) {
        for (int n = 0; !readers[i].ended; n++) {
            CHECK(n < TURNS_MAX);
            turn();
            read_some(fds[i], &readers[i]);
        }
        close(fds[i]);
    }
    CHECK(reactor->feeds->bytes == 0);
}

/* Closing costs the kernel much: those of a feed that ends go some at a time. */
static void test_a_feed_that_ends_lets_few_go_in_a_turn(void)
{
    enum { MANY = 40 };
    int fds[MANY];
    const int feed = feed_open(reactor, "0", 1);
    struct conn *last = NULL;
    for (int i = 0; i < MANY; i++) {
        last = come(&fds[i]);
        if (i < MANY - 1)
            CHECK(hearer_join(last, (uint32_t)feed, 0));
    }
    CHECK(push(feed, 100));
    feed_close(reactor, (uint32_t)feed);
    CHECK(feed_at(reactor, (uint32_t)feed) == NULL && !hearer_join(last, (uint32_t)feed, 0));
    const int other = feed_open(reactor, "0", 1);
    CHECK(other >= 0 && other != feed); /* its number is not free yet */
    int turns = 0;
    for (uint32_t before = reactor->feeds->hearers; before > 1; turns++) {
        CHECK(turns < TURNS_MAX && reactor->feeds->ending == 1);
        turn();
        CHECK(before - reactor->feeds->hearers <= HEARERS_ENDED_AT_ONCE);
        before = reactor->feeds->hearers;
    }
    CHECK(turns >= MANY / (int)HEARERS_ENDED_AT_ONCE && reactor->feeds->ending == 0);
    CHECK(feed_open(reactor, "0", 1) == feed); /* now it is */
    feed_close(reactor, (uint32_t)feed);
    feed_close(reactor, (uint32_t)other);
    CHECK(reactor->feeds->bytes == 0 && reactor->feeds->count == 0);
    conn_close(last);
    turn();
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
}

/* What comes behind the request of a listener is not looked at, and takes no beat away. */
static void test_beats_whatever_was_asked_behind(const char *behind_it)
{
    int fd;
    char said[512];
    size_t len = 0;
    struct conn *conn = come_with(&fd, behind_it);
    for (int n = 0; n < 50; n++)
        turn();
    for (int64_t later = 1; later <= 4; later++) { /* far beyond each deadline of a request */
        conn->protocol->deadline(conn, reactor->loop.now_ms + later * 10 * HEARER_BEAT_MS);
        for (int n = 0; n < 5; n++)
            turn();
        CHECK(client_of(conn)->hearer != NULL);
    }
    for (int n = 0; n < 200 && len < sizeof said - 1; n++) {
        const ssize_t got = recv(fd, said + len, sizeof said - 1 - len, MSG_DONTWAIT);
        len += got > 0 ? (size_t)got : 0;
        turn();
    }
    said[len] = 0;
    const char *at = strstr(said, ":\n\n");
    CHECK(at != NULL && strstr(said, "HTTP/1.1") != NULL);
    CHECK(strstr(strstr(said, "HTTP/1.1") + 1, "HTTP/1.1") == NULL); /* one answer */
    close(fd);
    /* It is not read from any more: its end is noticed by a beat at the latest. */
    const uint32_t before = gone;
    for (int64_t n = 5; gone == before; n++) {
        CHECK(n < TURNS_MAX);
        conn->protocol->deadline(conn, reactor->loop.now_ms + n * 10 * HEARER_BEAT_MS);
        turn();
    }
}

/* 30 s, as the pages say: not before, and whatever it was to hear meanwhile. */
static void test_who_reads_nothing_is_hung_up_on(void)
{
    int fd;
    const int feed = feed_open(reactor, "0", 1);
    struct conn *conn = come(&fd);
    CHECK(hearer_join(conn, (uint32_t)feed, feed_end(feed_at(reactor, feed))));
    for (int n = 0; n < 400; n++) {
        CHECK(push(feed, 1000));
        turn();
    }
    CHECK(conn->sending);
    const uint32_t before = gone;
    const int64_t since = conn->send_ms;
    for (int n = 0; n < 50; n++) {
        conn->protocol->deadline(conn, since + 30000);
        turn();
    }
    CHECK(gone == before && client_of(conn)->hearer != NULL && conn->send_ms == since);
    conn->protocol->deadline(conn, since + 30001);
    for (int n = 0; gone == before; n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
    close(fd);
    feed_close(reactor, (uint32_t)feed);
}

/* Each holds another body: together more than there may be. */
static void test_those_who_hold_too_much_are_ended(void)
{
    int fds[SLOW_MAX];
    const int feed = feed_open(reactor, "0", 1);
    const uint64_t shed = reactor->shed;
    uint32_t refused = 0;
    for (int i = 0; i < SLOW_MAX; i++) {
        struct conn *conn = come(&fds[i]);
        CHECK(hearer_join(conn, (uint32_t)feed, feed_end(feed_at(reactor, feed))));
        while (!push(feed, 1u << 20)) {
            CHECK(++refused < 100);
            turn();
        }
        CHECK(reactor->feeds->bytes <= FEEDS_BYTES_MAX);
        for (int n = 0; n < 5; n++)
            turn();
    }
    CHECK(reactor->shed > shed && feed_at(reactor, feed)->hearers > 0);
    hearers_end(reactor);
    for (int n = 0; reactor->feeds->hearers > 0 || reactor->admission.connections > 0; n++) {
        CHECK(n < TURNS_MAX);
        turn();
    }
    for (int i = 0; i < SLOW_MAX; i++)
        close(fds[i]);
    for (uint32_t more = 0; more < FEEDS_MAX - 1; more++)
        CHECK(feed_open(reactor, "0", 1) >= 0);
    CHECK(feed_open(reactor, "0", 1) < 0);
}

int main(void)
{
    for (int engine = 1; engine <= 2; engine++) {
        pushed = gone = sent = behind = 0;
        const char *reason;
        struct loop probe = {0};
        struct net *net = engine == 1 ? net_uring_new(&probe, &reason) : NULL;
        if (engine == 1 && net == NULL)
            continue; /* the kernel refuses it */
        if (net != NULL)
            net->free(net);
        start(engine);
        test_all_hear_all_and_join_where_it_is_kept();
        test_a_slow_one_sends_what_it_began_and_is_told_where_it_is();
        test_each_has_its_turn_before_anybody_has_another();
        test_a_feed_that_ends_lets_few_go_in_a_turn();
        test_beats_whatever_was_asked_behind("");
        test_beats_whatever_was_asked_behind("GET /x HT");
        test_beats_whatever_was_asked_behind("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
        test_beats_whatever_was_asked_behind("\x01\x02 nonsense\r\n\r\n");
        test_who_reads_nothing_is_hung_up_on();
        test_those_who_hold_too_much_are_ended();
        stop();
    }
    return 0;
}
