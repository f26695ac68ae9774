#include "core/core.h"

#include <assert.h>
#include <stdlib.h>

struct upcall *reactor_upcall(struct reactor *reactor, uint8_t kind, uint64_t id)
{
    if (reactor->upcall_count == reactor->upcall_capacity) {
        uint32_t capacity = reactor->upcall_capacity ? reactor->upcall_capacity * 2 : 64;
        reactor->upcalls = realloc(reactor->upcalls, capacity * sizeof *reactor->upcalls);
        assert(reactor->upcalls != NULL);
        reactor->upcall_capacity = capacity;
    }
    struct upcall *up = &reactor->upcalls[reactor->upcall_count++];
    *up = (struct upcall){.kind = kind, .id = id};
    return up;
}

bool reactor_disk_full(const struct reactor *reactor)
{
    return reactor->no_room && log_short_of_room(reactor->log);
}

bool reactor_memory(const struct reactor *reactor, size_t bytes)
{
    const struct log *log = reactor->log;
    return reactor->body_bytes + log->queued_bytes + log->held_bytes + bytes <=
           reactor->options.memory_max;
}

uint8_t *reactor_scratch(struct reactor *reactor, size_t bytes)
{
    if (bytes > reactor->scratch_capacity) {
        free(reactor->scratch);
        reactor->scratch = malloc(bytes);
        reactor->scratch_capacity = reactor->scratch ? bytes : 0;
    }
    return reactor->scratch;
}

bool frame_too_slow(const struct conn *conn, size_t got, int64_t now_ms)
{
    const int64_t age = now_ms - conn->since_ms - FRAME_GRACE_MS;
    return got > 0 && age > 0 && !conn->paused && !conn->blocked &&
           (int64_t)got < age * FRAME_BYTES_PER_MS;
}

static bool takes(struct reactor *reactor, uint8_t format)
{
    if (reactor->log_format < format && reactor->format_wanted < format)
        reactor->format_wanted = format;
    return reactor->log_format >= format;
}

bool reactor_takes_headers(struct reactor *reactor)
{
    return takes(reactor, LOG_HEADERS);
}

bool reactor_takes_early(struct reactor *reactor)
{
    return takes(reactor, LOG_EARLY);
}

uint16_t reactor_early_problem(struct reactor *reactor, const struct topic *topic)
{
    if (reactor->log_format < LOG_EARLY && !topic->any_time)
        return PROBLEM_FAR_TIMESTAMP;
    return reactor_takes_early(reactor) ? PROBLEM_NONE : PROBLEM_OLD_BROKERS;
}
