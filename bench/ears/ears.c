/* ears: many listeners of one topic's server-sent events, read by one thread, and how late they
 * have each: all are counted, and at one listener in TIMED each is looked at, and for itself what
 * it has after its first BEGIN reads: a new connection's segments are acknowledged one by one (16
 * of them, by Linux), which takes the other end's time. An event's value is "at SECONDS", by this
 * machine's monotonic clock. When all listen it says "ready"; then a line of its input is how many
 * events there were, and it ends when all have come, or 10 s later.
 * awake: it never sleeps. Who wakes a reader pays for that, which is the sender where both are on
 * one machine, and a network card's interrupt where they are not.
 * usage: ears PORT LISTENERS CORE [awake] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LISTENERS_MAX 65536
#define REST_MAX 1024u  /* of an event that is not whole */
#define BUCKET_US 100u
#define BUCKETS 200000u /* up to 20 s; what is later is in the last one */
#define PATIENCE_S 10.0
#define TIMED 10    /* what is looked at takes longer than what is only counted */
#define EVENT_LINES 3 /* id, data, and an empty one */
#define BEGIN 20

static struct {
    uint32_t rest, reads;
    char bytes[REST_MAX];
} ears[LISTENERS_MAX];
struct histogram {
    uint64_t buckets[BUCKETS], count;
};

/* settled: lateness after the begin; pauses: between two reads of a listener. */
static struct histogram lateness, settled, pauses;
static double last_read[LISTENERS_MAX];
static uint64_t lines, ended;
static char buffer[REST_MAX + (1 << 16)];

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int listen_to(uint16_t port)
{
    static const char request[] = "GET /v1/topic/t/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char head[8192];
    size_t len = 0;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || fd >= LISTENERS_MAX || connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        write(fd, request, sizeof request - 1) != (ssize_t)(sizeof request - 1))
        fail("connect");
    while (memmem(head, len, "\r\n\r\n", 4) == NULL) {
        const ssize_t got = read(fd, head + len, sizeof head - len);
        if (got <= 0)
            fail("no answer");
        len += (size_t)got;
    }
    if (memcmp(head, "HTTP/1.1 200", 12) != 0) {
        fprintf(stderr, "%.*s\n", (int)len, head);
        exit(1);
    }
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        fail("fcntl");
    return fd;
}

static void note(struct histogram *to, double seconds)
{
    const uint64_t bucket = seconds > 0 ? (uint64_t)(seconds * 1e6) / BUCKET_US : 0;
    to->buckets[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    to->count++;
}

/* One event; or a comment, which has no value. */
static void hear(const char *event, size_t len, double now, bool begins)
{
    static const char mark[] = "\"value\":\"at ";
    const char *at = memmem(event, len, mark, sizeof mark - 1);
    if (at == NULL)
        return;
    const double late = now - strtod(at + sizeof mark - 1, NULL);
    note(&lateness, late);
    if (!begins)
        note(&settled, late);
}

static void read_one(int epoll, int fd)
{
    const uint32_t rest = ears[fd].rest;
    memcpy(buffer, ears[fd].bytes, rest);
    const ssize_t got = read(fd, buffer + rest, sizeof buffer - rest);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        ended++;
        epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
        return;
    }
    const char *at = buffer + rest, *end = at + got, *stop;
    for (; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
        lines++;
    if (fd % TIMED != 0)
        return;
    const double now = now_s();
    if (last_read[fd] > 0)
        note(&pauses, now - last_read[fd]);
    last_read[fd] = now;
    ears[fd].reads++;
    at = buffer;
    while ((stop = memmem(at, (size_t)(end - at), "\n\n", 2)) != NULL) {
        hear(at, (size_t)(stop - at), now, ears[fd].reads < BEGIN);
        at = stop + 2;
    }
    if ((size_t)(end - at) > REST_MAX) {
        fprintf(stderr, "an event of more than %u bytes\n", REST_MAX);
        exit(1);
    }
    ears[fd].rest = (uint32_t)(end - at);
    memcpy(ears[fd].bytes, at, ears[fd].rest);
}

/* Milliseconds that such a share of all was below. */
static double share_ms(const struct histogram *of, double share)
{
    uint64_t left = (uint64_t)((double)of->count * share);
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket++) {
        if (left < of->buckets[bucket])
            return (bucket + 1) * (double)BUCKET_US / 1000;
        left -= of->buckets[bucket];
    }
    return BUCKETS * (double)BUCKET_US / 1000;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const int patience_ms = argc > 4 && strcmp(argv[4], "awake") == 0 ? 0 : 50;
    const int count = atoi(argv[2]), epoll = epoll_create1(EPOLL_CLOEXEC);
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(atoi(argv[3]), &core);
    sched_setaffinity(0, sizeof core, &core);
    for (int n = 0; n < count; n++) {
        struct epoll_event event = {.events = EPOLLIN};
        event.data.fd = listen_to((uint16_t)atoi(argv[1]));
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event) < 0)
            fail("epoll_ctl");
    }
    struct epoll_event input = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &input) < 0)
        fail("stdin");
    puts("ready");
    fflush(stdout);
    uint64_t wanted = UINT64_MAX;
    double until = 1e18;
    while (lines / EVENT_LINES < wanted && now_s() < until) {
        struct epoll_event events[256];
        const int n = epoll_wait(epoll, events, 256, patience_ms);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != STDIN_FILENO) {
                read_one(epoll, events[i].data.fd);
                continue;
            }
            unsigned long long sent = 0;
            if (scanf("%llu", &sent) != 1)
                return 1;
            wanted = sent * (uint64_t)count;
            until = now_s() + PATIENCE_S;
            epoll_ctl(epoll, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
        }
    }
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    printf("{\"heard\": %llu, \"ended\": %llu, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, "
           "\"settled_p99\": %.1f, \"turn_p50\": %.1f, \"turn_p99\": %.1f, \"cpu\": %.2f}\n",
           (unsigned long long)(lines / EVENT_LINES), (unsigned long long)ended,
           share_ms(&lateness, 0.5), share_ms(&lateness, 0.99), share_ms(&lateness, 0.999),
           share_ms(&settled, 0.99),
           share_ms(&pauses, 0.5), share_ms(&pauses, 0.99),
           (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    return 0;
}
