/* sink: the least that an HTTP server can do, to find out what the load generator can do at most.
 * It takes the size of the first request of a connection for the size of all, parses nothing
 * else, and answers 204 to each. usage: sink PORT [CORE] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 65536
#define ANSWERS_MAX 512

static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";
static char answers[ANSWERS_MAX * (sizeof answer - 1)];
static char buffer[1 << 20];
static struct {
    size_t request_bytes, have;
} conns[CONNECTIONS_MAX];

static size_t request_bytes(const char *p, size_t len)
{
    const char *end = memmem(p, len, "\r\n\r\n", 4);
    const char *length = memmem(p, len, "Content-Length: ", 16);
    if (!end)
        return 0;
    return (size_t)(end + 4 - p) + (length && length < end ? strtoul(length + 16, NULL, 10) : 0);
}

/* Reads what is there, answers what is complete; false when the connection is over. */
static bool serve(int fd)
{
    ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0;
    if (conns[fd].request_bytes == 0)
        conns[fd].request_bytes = request_bytes(buffer, (size_t)n);
    if (conns[fd].request_bytes == 0)
        return false;
    size_t have = conns[fd].have + (size_t)n, count = have / conns[fd].request_bytes;
    conns[fd].have = have % conns[fd].request_bytes;
    while (count) {
        size_t some = count < ANSWERS_MAX ? count : ANSWERS_MAX;
        if (send(fd, answers, some * (sizeof answer - 1), MSG_NOSIGNAL) < 0)
            return false;
        count -= some;
    }
    return true;
}

static void accept_all(int listener, int epoll)
{
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 && fd < CONNECTIONS_MAX) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        conns[fd].request_bytes = conns[fd].have = 0;
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(argc > 1 ? argv[1] : "0")),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    int epoll = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) {
        perror("sink");
        return 1;
    }
    if (argc > 2) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)atoi(argv[2]), &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    for (size_t i = 0; i < ANSWERS_MAX; i++)
        memcpy(answers + i * (sizeof answer - 1), answer, sizeof answer - 1);
    struct epoll_event events[256], event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(listener, epoll);
            else if (!serve(events[i].data.fd))
                close(events[i].data.fd);
        }
    }
}
