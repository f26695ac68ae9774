/* spans: where the time of a traced produce went, kept until the upper layer takes it.
 *
 * Traced is what its client says is (a traceparent with the flag "sampled"), of those that say
 * nothing a share, and what is a part of it at the process that it is handed to. Nothing waits for
 * who takes the spans: what does not fit is counted, and lost.
 * Where nobody asks for them there are none, and each place that would note a time looks at one
 * pointer: of the reactor for a group, of its slot for a request. */
#ifndef BARCO_SPANS_H
#define BARCO_SPANS_H

#include "core/client.h"
#include "core/core.h"
#include "core/frames.h"

#define SPANS_OPEN_MAX 256u /* requests that are traced at a time */
#define SPANS_KEPT_MAX 256u /* until they are taken */
#define SPANS_HANDED_IN_MAX 64u /* of those that are open, calls of other processes */
#define SPAN_TRACE_BYTES 16u
#define SPAN_PARENT_BYTES 8u

/* When a group was where it lies now; 0: not yet. */
struct span_group {
    uint64_t epoch, gseq;
    int64_t built_us, written_us, replicated_us;
};

/* One produce. Times by the monotonic clock, 0: it never came to that. */
struct span {
    uint8_t trace[SPAN_TRACE_BYTES], parent[SPAN_PARENT_BYTES];
    bool has_parent;
    bool handed_in; /* another process has handed it over, and its span there is the parent */
    bool handed_on;  /* to another process, as a part of this: */
    uint8_t handed_as[SPAN_PARENT_BYTES];
    uint8_t topic_len;
    uint16_t status;
    uint64_t events;
    int64_t begun_us, received_us, answered_us;
    int64_t handed_us; /* when another process, which leads its slice, has answered it */
    struct span_group group; /* of its last part that was stored here */
    char topic[TOPIC_NAME_BYTES_MAX];
    char id[GIVEN_ID_BYTES_MAX + 1]; /* what the client calls the request; "": nothing */
};

/* A call of another process until it is answered. */
struct span_handed_in {
    uint64_t conn, tag;
    struct span *span;
};

struct spans {
    uint64_t share; /* of 2^32: of requests without a traceparent */
    uint32_t open, count, handed_in_count;
    uint64_t lost; /* since start */
    struct span_group groups[BUILT_KEPT];
    struct span kept[SPANS_KEPT_MAX];
    struct span_handed_in handed_in[SPANS_HANDED_IN_MAX];
};

/* From now on. False: no memory. */
bool spans_begin(struct reactor *reactor, uint64_t share);
void spans_free(struct reactor *reactor);
/* All that were kept are the upper layer's. */
void spans_taken(struct reactor *reactor);

/* A produce whose head is there; slot->span is NULL if it is not traced. */
void span_open(struct reactor *reactor, const struct http1_request *head, struct slot *slot);
/* A part of it is stored, in the group that is shown now; or another process has answered it. */
void span_stored(struct reactor *reactor, const struct waiter *waiter);
void span_handed(struct reactor *reactor, const struct waiter *waiter);
/* A part of it is handed on: what the other process is told of it. False: it is not traced. */
bool span_hand_on(struct reactor *reactor, const struct waiter *waiter, struct trace_frame *told);
/* Another process hands over a part of what it traces; it is answered, with that status, or given
 * back (0); its connection is gone. */
void span_hand_in(struct reactor *reactor, const struct waiter *waiter,
                  const struct trace_frame *told, const struct topic *topic);
void span_handed_in_answered(struct reactor *reactor, const struct waiter *waiter, uint16_t status,
                             uint32_t events);
void spans_handed_in_forget(struct reactor *reactor, uint64_t conn);
/* Its parts are stored: their events are its own. */
void span_holds(struct slot *slot);
/* It is answered, with that status. */
void span_answered(struct reactor *reactor, struct slot *slot, uint16_t status);
/* It is forgotten with its slot. */
void span_drop(struct reactor *reactor, struct slot *slot);

void span_group_built(struct reactor *reactor, uint64_t gseq, int64_t now_us);
void span_group_written(struct reactor *reactor, uint64_t gseq, int64_t now_us);
/* A follower has all groups up to this one; before log_replicated(). */
void span_groups_replicated(struct reactor *reactor, uint64_t gseq, int64_t now_us);

#endif
