/* A worker of a single broker, with one open generation, for tests of its front; and whether an
 * engine is there. */
#ifndef BARCO_WORKER_TESTING_H
#define BARCO_WORKER_TESTING_H

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/reactor.h"
#include "codec_testing.h"
#include "tests/tls_testing.h"

/* It has slices 0 to 7, and room for ten connections. */
static inline struct reactor *worker_new(int engine, const struct made *certificate)
{
    struct reactor_options options = {
        .log = {.arena_bytes = 8u << 20, .epoch = 1, .session = 1, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 4u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 1, .peers = 3,
        .connections_max = 10, .range_start = INT64_MIN, .auto_create = true, .engine = engine};
    const char *error;
    struct reactor *made = reactor_new(&options, &error);
    CHECK(made != NULL);
    const struct tls_options tls = options_of(certificate, 1000);
    char why[TLS_WHY_BYTES];
    CHECK(tls_set(&made->loop, &tls, why));
    const int fd = memfd_create("segment", MFD_CLOEXEC);
    CHECK(fd >= 0 && reactor_set_route(made, 0, 8, 0, "127.0.0.1:9300") == 0);
    log_add_segment(made->log, 0, fd, 24u << 20);
    log_open_generation(made->log, (const uint8_t *)"parents", 7);
    return made;
}

static inline void worker_free(struct reactor *worker)
{
    const int fd = log_segment(worker->log, 0)->fd;
    reactor_free(worker);
    close(fd);
}

/* io_uring (1) may be forbidden; epoll (2) is always there. */
static inline bool engine_is_there(int engine)
{
    const char *reason = NULL;
    struct loop loop = {0};
    struct net *net = engine == 1 ? net_uring_new(&loop, &reason) : NULL;
    if (engine == 1 && net == NULL) {
        fprintf(stderr, "only epoll: %s\n", reason);
        return false;
    }
    if (net != NULL)
        net->free(net);
    return true;
}

#endif
