/* loadgen: a closed-loop load generator, one thread on one core, HTTP/1.1 or RESP.
 *
 * Every connection sends `depth` requests in one write, waits for all their answers, checks each,
 * and sends the next ones. A latency is the time from just before that write to an answer. */
#ifndef LOADGEN_H
#define LOADGEN_H

#include "answer.h"
#include "histogram.h"
#include "pool.h"
#include "request.h"

#include <stdbool.h>
#include <stdint.h>

#define PATHS_MAX 64
#define HEADERS_MAX 16
#define PIDS_MAX 8
#define DEPTH_MAX 256
#define CURSOR_BYTES_MAX 96

struct options {
    const char *host;
    uint16_t port;
    uint32_t connections, depth;
    double seconds, warmup; /* measured time, and the time before it */
    uint64_t requests;      /* instead of seconds: stop after so many */
    int core;               /* pin to this core; -1 not */
    bool resp, discard, no_body, spin, cursor_stop;
    const char *method, *paths[PATHS_MAX], *headers[HEADERS_MAX], *resp_command;
    uint32_t path_count, header_count;
    struct pool_spec pool;
    const char *payload_file, *payload_frames, *pool_out;
    uint64_t topics, keys, key_base; /* keys 0: a new key for every request */
    const char *cursor_start, *cursor_header;
    int pids[PIDS_MAX]; /* processes whose CPU time is wanted */
    uint32_t pid_count;
    int cpu_core; /* core whose busy time is wanted; -1 none */
};

struct counters {
    uint64_t requests, events, bytes_sent, bytes_received, errors, ends;
    uint64_t statuses[600];
};

struct conn {
    int fd;
    uint32_t index;
    uint32_t outstanding; /* requests without their answer yet */
    uint32_t batch_done;
    uint64_t sent_ns;
    uint64_t body_left; /* bytes of the current answer's body still to come */
    bool in_body, sending, ended, closes;
    char *out;            /* heads, and small bodies, of the current batch */
    struct iovec *pieces; /* what is left to write */
    uint32_t piece_at, piece_count;
    uint32_t events[DEPTH_MAX]; /* of the requests under way, in order */
    uint32_t bytes[DEPTH_MAX];
    char *carry; /* an incomplete head, kept for the next receive */
    uint32_t carry_len;
    char cursor[CURSOR_BYTES_MAX];
    uint32_t cursor_len;
};

struct sample { /* clocks, in seconds */
    double wall, client, core, pids[PIDS_MAX];
};

struct loadgen {
    struct options options;
    struct pool pool;
    struct request_template templates[PATHS_MAX];
    struct conn *conns;
    struct counters counters;
    struct histogram latency;
    struct sample start, stop;
    size_t next_body;
    uint64_t next_request, reconnects;
    int epoll;
    uint32_t busy, live; /* connections with answers due; connections that have not ended */
    bool measuring, stopping;
    char first_error[512];
    char *buffer; /* one receive buffer for all: it stays in the cache */
};

uint64_t now_ns(void);
void take_sample(const struct options *options, struct sample *out);

/* Opens every connection and runs the loop; 0, or -1 with first_error set. */
int loadgen_run(struct loadgen *g);

/* Command line into options; exits with 2 and a sentence on a mistake. */
void options_parse(int argc, char **argv, struct options *out);

/* The head of the requests of one path, as text to compile; NULL: no memory. */
char *options_template(const struct options *options, uint32_t path);

#endif
