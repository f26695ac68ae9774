#include "broker/checked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/dispatch.h"
#include "broker/slots.h"
#include "format/batch.h"
#include "format/keyed.h"

#define WITHHELD_MAX 1024u             /* requests */
#define WITHHELD_BYTES_MAX (64u << 20) /* that they take, unless one alone takes more */
#define COPIES 3u                      /* of a body: as it came, as bytes of Python, and parsed */
#define EVENT_BYTES 256u               /* of Python, for each event beside its own bytes */

static struct withheld *withheld_new(const struct produce *produce)
{
    const size_t key_len = produce->has_key || produce->key_field ? produce->key_len : 0;
    struct withheld *kept = malloc(sizeof *kept + key_len + produce->headers_len);
    if (kept == NULL)
        return NULL;
    kept->produce = *produce;
    kept->produce.key = kept->bytes;
    kept->produce.headers = kept->bytes + key_len;
    if (key_len > 0)
        memcpy(kept->bytes, produce->key, key_len);
    if (produce->headers_len > 0)
        memcpy(kept->bytes + key_len, produce->headers, produce->headers_len);
    return kept;
}

/* The body as one that can be handed over: the request's own, or a copy. */
static struct body *take_body(struct reactor *reactor, struct request *request,
                              const uint8_t *bytes, size_t len)
{
    struct body *body = request->body;
    request->body = NULL;
    if (body != NULL) {
        assert(body->data == bytes && body->len == len);
        return body;
    }
    body = body_new(&reactor->body_bytes, len > 0 ? len : 1);
    if (body != NULL && len > 0)
        memcpy(body->data, bytes, len);
    if (body != NULL)
        body->len = len;
    return body;
}

/* The topic, and behind it the key and the headers, for what becomes of an event. */
static uint8_t *make_head(const struct topic *topic, const struct withheld *kept, uint32_t *len)
{
    const struct produce *produce = &kept->produce;
    const uint32_t key_len = produce->has_key ? produce->key_len : 0;
    const uint32_t lens[] = {topic->name_len, produce->has_key ? key_len + 1 : 0,
                             produce->headers_len};
    *len = (uint32_t)sizeof lens + topic->name_len + key_len + produce->headers_len;
    uint8_t *head = malloc(*len), *at = head + sizeof lens;
    if (head == NULL)
        return NULL;
    memcpy(head, lens, sizeof lens);
    memcpy(at, topic->name, topic->name_len);
    at += topic->name_len;
    if (key_len > 0)
        memcpy(at, produce->key, key_len);
    if (produce->headers_len > 0)
        memcpy(at + key_len, produce->headers, produce->headers_len);
    return head;
}

/* How much memory who looks at it takes: each event becomes values of Python, and of a batch, which
 * may say much in few bytes, all that it unpacks to. What is too large is refused here, before. */
static uint16_t cost_of(const struct reactor *reactor, const struct produce *produce,
                        const uint8_t *bytes, size_t len, uint64_t *cost)
{
    const bool lines = produce->content == CONTENT_LINES || produce->content == CONTENT_KEYED;
    uint64_t events = lines ? 0 : 1, more = 0;
    if (produce->content == CONTENT_BATCH) {
        struct batch_view view;
        if (batch_open(bytes, len, &view) < 0)
            return PROBLEM_BAD_BATCH;
        events = view.count;
        more = view.raw_bytes;
    }
    const uint8_t *const end = bytes + len;
    for (const uint8_t *at = bytes; lines && at < end && events <= KEYED_LINES_MAX; events++) {
        const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
        at = stop == NULL ? end : stop + 1;
    }
    if (events > KEYED_LINES_MAX || more > reactor->options.request_bytes_max)
        return PROBLEM_BODY_TOO_LARGE;
    *cost = COPIES * len + more + EVENT_BYTES * events;
    assert(*cost <= UINT32_MAX);
    return PROBLEM_NONE;
}

uint16_t checked_withhold(struct conn *conn, struct slot *slot, const uint8_t *bytes, size_t len)
{
    struct reactor *reactor = conn_reactor(conn);
    struct request *request = &client_of(conn)->request;
    const struct produce *produce = &request->produce;
    uint32_t head_len;
    uint64_t cost;
    assert(slot->kind == SLOT_OPEN && !slot->control && slot->withheld == NULL);
    const uint16_t problem = cost_of(reactor, produce, bytes, len, &cost);
    if (problem != PROBLEM_NONE)
        return problem;
    if (reactor->withheld >= WITHHELD_MAX ||
        (reactor->withheld > 0 && reactor->withheld_bytes + cost > WITHHELD_BYTES_MAX) ||
        !reactor_memory(reactor, cost))
        return PROBLEM_BUSY;
    struct withheld *kept = withheld_new(produce);
    uint8_t *head = kept != NULL ? make_head(slot->topic, kept, &head_len) : NULL;
    struct body *body = head != NULL ? take_body(reactor, request, bytes, len) : NULL;
    if (body == NULL) {
        free(head);
        free(kept);
        return PROBLEM_BUSY;
    }
    slot->withheld = kept;
    slot->withheld_bytes = (uint32_t)cost;
    reactor->withheld++;
    reactor->withheld_bytes += cost;
    struct upcall *up = reactor_upcall(reactor, UPCALL_CHECK,
                                       request_id(conn_id(conn), request->slot));
    up->head = head;
    up->head_len = head_len;
    up->body = body;
    /* With a field for the key a line is stored as it is. */
    const uint8_t content = produce->key_field ? CONTENT_LINES : produce->content;
    up->status = (uint16_t)(content | (produce->json ? CHECK_JSON : 0) |
                            (produce->valid_only ? CHECK_VALID_ONLY : 0));
    return PROBLEM_NONE;
}

uint16_t checked_produce(struct reactor *reactor, uint64_t id, bool told, const uint8_t *bytes,
                         size_t len)
{
    struct conn *conn;
    uint32_t number;
    uint64_t detail = 0;
    struct slot *slot = slot_of_request(reactor, id, &conn, &number);
    if (slot == NULL || slot->withheld == NULL)
        return PROBLEM_NOT_READY; /* its client has gone */
    assert(slot->waiting == 0 && slot->parts == NULL);
    /* Not told: from here on it is a produce like any other. */
    struct withheld *kept = told ? slot->withheld : slot_let_go(conn, slot);
    kept->produce.checked = slot->checked = true;
    const struct waiter waiter = {.kind = WAITER_SLOT, .slot = number, .conn = conn_id(conn)};
    uint16_t problem = reactor_memory(reactor, len) ? PROBLEM_NONE : PROBLEM_BUSY;
    if (problem == PROBLEM_NONE)
        problem = produce_body(reactor, &kept->produce, waiter, slot, bytes, len, NULL, &detail);
    if (told) {
        if (problem != PROBLEM_NONE)
            slot_parts_clear(slot);
        return problem;
    }
    free(kept);
    if (problem != PROBLEM_NONE) {
        slot->expected = detail;
        conn_problem(conn, slot, problem);
    }
    return PROBLEM_NONE;
}
