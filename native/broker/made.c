#include "broker/made.h"

#include <assert.h>

#include "admission/access.h"
#include "broker/dispatch.h"
#include "broker/produce_head.h"
#include "broker/slots.h"
#include "core/route.h"
#include "http/uri.h"

uint16_t made_produce(struct reactor *reactor, uint64_t id, const char *topic, size_t topic_len,
                      bool known_only, int64_t at, const uint8_t *bytes, size_t len)
{
    struct produce produce = {
        .content = CONTENT_BATCH, .number = at, .known_only = known_only, .loose = true,
        .checked = true}; /* by who made it */
    struct conn *conn;
    uint32_t number;
    uint64_t detail = 0;
    struct slot *slot = slot_of_request(reactor, id, &conn, &number);
    if (slot == NULL || len > reactor->options.request_bytes_max)
        return slot == NULL ? PROBLEM_NOT_READY : PROBLEM_BODY_TOO_LARGE;
    assert(slot_is_told(slot) && slot->asked == NULL && slot->waiting == 0);
    if (!topic_name_valid(topic, topic_len))
        return PROBLEM_BAD_TOPIC;
    if (at >= (int64_t)ring_slices(reactor))
        return PROBLEM_BAD_SLICE;
    if (topic_name_reserved(topic, topic_len))
        return PROBLEM_RESERVED_TOPIC;
    uint16_t problem = produce_topic(conn, (struct http1_slice){topic, (uint32_t)topic_len},
                                     &produce);
    if (problem == PROBLEM_NONE && !reactor_memory(reactor, 2 * len))
        problem = PROBLEM_BUSY;
    if (problem != PROBLEM_NONE)
        return problem;
    const struct waiter waiter = {.kind = WAITER_SLOT, .slot = number, .conn = conn_id(conn)};
    problem = produce_body(reactor, &produce, waiter, slot, bytes, len, NULL, &detail);
    if (problem != PROBLEM_NONE)
        slot_parts_clear(slot);
    else if (len > slot->held && slot->control) /* asked of who sent it, as if it had come */
        access_charge(conn, len - slot->held);
    return problem;
}
