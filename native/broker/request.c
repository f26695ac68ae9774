/* HTTP requests as they come in: heads, bodies, and what has to be asked for before they are kept.
 */
#include "core/client.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "admission/access.h"
#include "admission/admit.h"
#include "broker/answer.h"
#include "broker/checked.h"
#include "broker/cloud.h"
#include "admission/control.h"
#include "broker/dispatch.h"
#include "admission/encoded.h"
#include "broker/feed.h"
#include "admission/host.h"
#include "broker/park.h"
#include "admission/paths.h"
#include "broker/produce_head.h"
#include "admission/refusals.h"
#include "admission/shed.h"
#include "core/spans.h"
#include "broker/slots.h"

#define REFUSED_PER_TURN 16 /* requests of one connection; then others have their turn */
#define CONTROL_BODY_MAX (1u << 20) /* PUT, PATCH, and lists of events or positions */
#define CONTROL_ASK_BODY_MAX (16u << 10) /* everything else: these may wait long with their body */
#define CONTROL_MEMORY_MAX (32u << 20)   /* such bodies, of all connections; over it 503 */
#define DISCARD_BODY_MAX (256u << 10) /* a refused body this small is read over, else we close */
#define HEAD_DEADLINE_MS 10000
#define IDLE_DEADLINE_MS 300000
#define BODY_GRACE_MS 5000
#define BODY_BYTES_PER_S 1024
#define SEND_DEADLINE_MS 30000 /* for SEND_PROGRESS_BYTES of answers, or what is left of them */
#define LINGER_MS 2000
#define MEMORY_WAIT_MS 5000

static void request_clear(struct request *request)
{
    free(request->owned_key);
    free(request->head);
    if (request->body != NULL)
        body_release(request->body);
    memset(request, 0, sizeof *request);
}

/* Refuses the current request. Its body is read over when it is small and its length is known,
 * so that the connection lives on; else the connection ends after the answer. */
static void refuse(struct conn *conn, struct slot *slot, uint16_t problem, uint64_t body_left,
                   bool length_known)
{
    struct client *client = client_of(conn);
    assert(slot->kind == SLOT_OPEN && problem != PROBLEM_NONE);
    if (problem == PROBLEM_BODY_TOO_LARGE)
        slot->expected = client->request.body_max;
    request_clear(&client->request);
    client->state = STATE_HEAD;
    if (!length_known || body_left > DISCARD_BODY_MAX) {
        slot->close = true;
        client_linger(conn); /* nothing after this request is looked at */
    } else if (body_left > 0) {
        client->state = STATE_DISCARD;
        client->discard = body_left;
    }
    conn_problem(conn, slot, problem);
}

static uint16_t head_problem(uint16_t status)
{
    switch (status) {
    case 411: return PROBLEM_LENGTH_REQUIRED;
    case 414: return PROBLEM_URI_TOO_LONG;
    case 417: return PROBLEM_EXPECTATION;
    case 431: return PROBLEM_HEAD_TOO_LARGE;
    case 501: return PROBLEM_NOT_IMPLEMENTED;
    case 505: return PROBLEM_VERSION;
    default: return PROBLEM_BAD_REQUEST;
    }
}

/* What waits in the upper layer, long polls mostly, is bounded like all else. 0, or the problem. */
static uint16_t finish_control(struct conn *conn, struct slot *slot)
{
    struct client *client = client_of(conn);
    struct request *request = &client->request;
    uint32_t held = request->body ? (uint32_t)request->body->len : 0;
    struct reactor *reactor = conn_reactor(conn);
    assert(slot->held == 0 && !slot->control); /* counted once, and given back by slot_clear() */
    if ((held > 0 && reactor->control_bytes + held > CONTROL_MEMORY_MAX) ||
        (reactor->control_open + 1) * CONTROL_REQUEST_BYTES > reactor->options.memory_max)
        return PROBLEM_BUSY;
    uint16_t problem = control_ask(conn, request->slot, request->head, request->head_len,
                                   request->body);
    if (problem != PROBLEM_NONE)
        return problem;
    reactor->control_bytes += slot->held = held;
    reactor->asking.open[client->guest.address]++;
    reactor->control_open++;
    client->control_open++;
    assert(client->control_open <= reactor->control_open);
    request->head = NULL;
    request->body = NULL;
    slot->control = true;
    conn_reactor(conn)->control_requests++;
    return PROBLEM_NONE;
}

/* What somebody has no right to is told in the log, with an id that the answer has. */
static void note_refusal(struct conn *conn, const struct http1_request *head, struct slot *slot,
                         uint16_t problem)
{
    if (is_refusal(answer_status(problem)))
        refusals_note(conn, slot, &head->method_text, &head->path, access_refused(conn, problem),
                      answer_status(problem), answer_type(problem));
}

/* A produce that was refused with its body there. */
static void note_late_refusal(struct conn *conn, const struct topic *topic, struct slot *slot,
                              uint16_t problem)
{
    if (is_refusal(answer_status(problem)))
        refusals_note_produce(conn, slot, topic, access_refused(conn, problem),
                              answer_status(problem), answer_type(problem));
}

/* Unpacks the body that came, if it is packed; then it is the request's instead. What it makes is
 * asked of who sends it, as if it had come. */
static uint16_t unpack_body(struct conn *conn, const uint8_t **bytes, size_t *len)
{
    struct request *request = &client_of(conn)->request;
    struct body *body;
    if (request->produce.coding == CODING_NONE)
        return PROBLEM_NONE;
    const uint16_t problem = encoded_unpack(conn_reactor(conn), request->produce.coding, *bytes,
                                            *len, &body);
    if (problem != PROBLEM_NONE)
        return problem;
    if (body->len > *len)
        access_charge(conn, body->len - *len);
    if (request->body != NULL)
        body_release(request->body);
    request->body = body;
    *bytes = body->data;
    *len = body->len;
    return PROBLEM_NONE;
}

/* The request's body is complete. */
static void finish_request(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct client *client = client_of(conn);
    struct request *request = &client->request;
    struct slot *slot = conn_slot(conn, request->slot);
    uint16_t problem = PROBLEM_NONE;
    assert(slot != NULL && (client->state == STATE_BODY || client->state == STATE_CHUNKED));
    conn_reactor(conn)->bytes_in += len;
    slot->want_continue = false;
    client->state = STATE_HEAD;
    if (request->control) {
        problem = unpack_body(conn, &bytes, &len);
        if (problem == PROBLEM_NONE && request->body == NULL && len > 0) {
            request->body = body_new(&conn_reactor(conn)->body_bytes, len);
            if (request->body == NULL) {
                problem = PROBLEM_BUSY;
            } else {
                memcpy(request->body->data, bytes, len);
                request->body->len = len;
            }
        }
        if (problem == PROBLEM_NONE)
            problem = finish_control(conn, slot);
    } else {
        struct waiter waiter = {.kind = WAITER_SLOT, .slot = request->slot, .conn = conn_id(conn)};
        uint64_t detail = 0;
        const struct topic *topic = slot->topic; /* not the one where it waits */
        histogram_note(&conn_reactor(conn)->stages.of[STAGE_RECEIVE],
                       conn->loop->monotonic_us - slot->begun_us);
        if (slot->span != NULL)
            slot->span->received_us = conn->loop->monotonic_us;
        problem = access_again(conn, &(struct http1_slice){topic->name, topic->name_len});
        if (problem == PROBLEM_NONE)
            problem = unpack_body(conn, &bytes, &len);
        if (problem == PROBLEM_NONE && request->produce.cloud != CLOUD_NONE)
            problem = cloud_read(conn_reactor(conn), &request->produce, &request->body, &bytes,
                                 &len, &detail);
        if (problem == PROBLEM_NONE && topic->checked && !request->produce.no_value)
            problem = checked_withhold(conn, slot, bytes, len);
        else if (problem == PROBLEM_NONE)
            problem = produce_body(conn_reactor(conn), &request->produce, waiter, slot, bytes,
                                   len, request->body, &detail);
        if (problem != PROBLEM_NONE) {
            slot->expected = detail;
            note_late_refusal(conn, topic, slot, problem);
        }
    }
    request_clear(request);
    conn->since_ms = conn->loop->now_ms;
    if (problem != PROBLEM_NONE)
        conn_problem(conn, slot, problem);
    else
        client->guest.refuser = false;
    note_wary(client);
}

static bool ends_with(const struct http1_request *head, const char *end)
{
    size_t len = strlen(end);
    return head->path.len > len && memcmp(head->path.p + head->path.len - len, end, len) == 0;
}

/* PUT and PATCH, lists of events, schemas: none of these calls waits for long with its body. */
static bool is_large(const struct http1_request *head)
{
    static const char schemas[] = "/registry/";
    return head->method == HTTP1_PUT || head->method == HTTP1_PATCH || ends_with(head, "ack") ||
           ends_with(head, "/extend") || ends_with(head, "/commit") || ends_with(head, "/reject") ||
           (head->path.len >= sizeof schemas - 1 &&
            memcmp(head->path.p, schemas, sizeof schemas - 1) == 0);
}

static bool keep_head(struct conn *conn, const struct http1_request *head, const uint8_t *bytes,
                      size_t len)
{
    struct request *request = &client_of(conn)->request;
    assert(request->head == NULL && len > 0 && len <= UINT32_MAX);
    request->control = true;
    const bool staged = path_is_stage(head) || path_is_shipped(head);
    request->body_max = staged           ? conn_reactor(conn)->options.request_bytes_max
                        : is_large(head) ? CONTROL_BODY_MAX
                                         : CONTROL_ASK_BODY_MAX;
    request->head = malloc(len);
    if (request->head == NULL)
        return false;
    memcpy(request->head, bytes, len);
    request->head_len = (uint32_t)len;
    return true;
}

/* Key and headers lie in scratch memory: keep them when the body is still to come. */
static bool keep_key(struct request *request)
{
    struct produce *produce = &request->produce;
    assert(request->owned_key == NULL || produce->key == request->owned_key);
    if (!(produce->has_key || produce->key_field || produce->headed) || request->owned_key != NULL)
        return true;
    uint8_t *kept = malloc((size_t)produce->key_len + produce->headers_len + 1);
    if (kept == NULL)
        return false;
    if (produce->key_len > 0)
        memcpy(kept, produce->key, produce->key_len);
    if (produce->headers_len > 0)
        memcpy(kept + produce->key_len, produce->headers, produce->headers_len);
    produce->key = request->owned_key = kept;
    produce->headers = kept + produce->key_len;
    return true;
}

/* A complete head: opens the answer's slot and decides what the body is for. */
static void begin_request(struct conn *conn, const struct http1_request *head,
                          const uint8_t *bytes, size_t head_len)
{
    struct client *client = client_of(conn);
    struct request *request = &client->request;
    assert(client->state == STATE_HEAD && request->body == NULL); /* the last one is over */
    struct slot *slot = slot_open(conn);
    if (slot == NULL) {
        conn_close(conn);
        return;
    }
    request->slot = client->slot_end - 1;
    slot->close = !head->keep_alive;
    slot->http10_keep_alive = head->keep_alive && head->minor == 0;
    slot->head_only = head->method == HTTP1_HEAD;
    id_given(slot, head);
    request->body_want = head->content_length > 0 ? (uint64_t)head->content_length : 0;
    conn_reactor(conn)->requests++;
    conn->since_ms = conn->loop->now_ms;
    slot->begun_us = conn->loop->monotonic_us;
    struct http1_slice topic;
    uint16_t problem = request_origin(conn, head);
    bool produce = head->method == HTTP1_POST && path_is_produce(head, &topic);
    if (problem == PROBLEM_NONE)
        problem = access_check(conn, head, produce ? &topic : NULL);
    if (problem != PROBLEM_NONE) {
        request->body_max = UINT64_MAX;
    } else if (produce) {
        conn_reactor(conn)->produce_requests++;
        request->body_max = conn_reactor(conn)->options.request_bytes_max;
        if (head->content_length < 0 && !head->chunked)
            problem = PROBLEM_LENGTH_REQUIRED;
        else
            problem = produce_head(conn, head, topic, slot, &request->produce);
    } else if (!keep_head(conn, head, bytes, head_len)) {
        problem = PROBLEM_BUSY;
    } else if (path_is_shipped(head)) {
        problem = encoded_as(head, &request->produce.coding);
    }
    if (problem == PROBLEM_NONE && request->body_want > request->body_max)
        problem = PROBLEM_BODY_TOO_LARGE;
    if (problem != PROBLEM_NONE) {
        note_refusal(conn, head, slot, problem);
        /* A client that waits for 100 Continue sends no body once it reads the refusal. */
        refuse(conn, slot, problem, request->body_want,
               !head->chunked && !head->expect_continue && problem != PROBLEM_CONNECTIONS);
        return;
    }
    access_charge(conn, request->body_want);
    if (produce && conn_reactor(conn)->spans != NULL)
        span_open(conn_reactor(conn), head, slot);
    if (head->chunked) {
        http1_chunked_init(&request->chunked, request->body_max);
        client->state = STATE_CHUNKED;
    } else {
        client->state = STATE_BODY;
    }
    slot->want_continue = head->expect_continue && (head->chunked || request->body_want > 0);
    client->asks = request->control;
    note_wary(client);
}

/* Asks for memory before it is taken. False: the connection waits, at most MEMORY_WAIT_MS in all
 * until it gets some, however often others wake it: those who wait hold what others wait for. */
static bool has_memory(struct conn *conn, size_t bytes)
{
    struct reactor *reactor = conn_reactor(conn);
    if (reactor_memory(reactor, bytes)) {
        conn->blocked_ms = 0;
        return true;
    }
    if (conn->blocked_ms == 0)
        conn->blocked_ms = reactor->loop.now_ms;
    conn->blocked = reactor->blocked_any = true;
    return false;
}

/* Makes room for a body of up to want bytes. False: wait for memory. */
static bool make_room(struct conn *conn, size_t want)
{
    struct client *client = client_of(conn);
    struct reactor *reactor = conn_reactor(conn);
    struct body *body = client->request.body;
    size_t have = body ? body->capacity : 0;
    assert(body == NULL || body->len <= have);
    if (want <= have)
        return true;
    if (!has_memory(conn, want - have))
        return false;
    if (body == NULL) {
        client->request.body = body_new(&reactor->body_bytes, want);
        return client->request.body != NULL;
    }
    return body_reserve(body, want);
}

/* How much to reserve now: all at once while memory is plentiful, else as the bytes come, so that
 * slow senders of large bodies cannot hold what they do not use. */
static size_t body_goal(const struct conn *conn, uint64_t total, size_t now)
{
    if (total <= (256u << 10) || reactor_memory(conn_reactor(conn), total * 3))
        return total;
    assert(now <= total);
    size_t doubled = now * 2 > (256u << 10) ? now * 2 : (256u << 10);
    return doubled < total ? doubled : total;
}

static size_t input_body(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct request *request = &client_of(conn)->request;
    size_t have = request->body ? request->body->len : 0;
    assert(have <= request->body_want);
    uint64_t left = request->body_want - have;
    if (have == 0 && len >= left) {
        if (left > 0 && !has_memory(conn, left)) {
            if (!keep_key(request))
                conn_close(conn);
            return 0;
        }
        finish_request(conn, bytes, left);
        return left;
    }
    size_t take = len < left ? len : left;
    const bool there = request->body != NULL && bytes == request->body->data + have;
    if (!keep_key(request) ||
        (!there && !make_room(conn, body_goal(conn, request->body_want, have + take))))
        return 0;
    struct body *body = request->body;
    assert(body->len + take <= body->capacity);
    if (!there)
        memcpy(body->data + body->len, bytes, take);
    body->len += take;
    if (body->len == request->body_want)
        finish_request(conn, body->data, body->len);
    return take;
}

static size_t input_chunked(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct request *request = &client_of(conn)->request;
    size_t have = request->body ? request->body->len : 0, consumed = 0, produced = 0;
    /* What comes out is never longer than what goes in. Doubling: small pieces must not cost a
     * copy of the whole each. */
    size_t want = have + len, capacity = request->body ? request->body->capacity : 0;
    size_t doubled = 2 * capacity < request->body_max ? 2 * capacity : request->body_max;
    if (want > capacity && want < doubled)
        want = doubled;
    if (!keep_key(request) || !make_room(conn, want))
        return 0;
    struct body *body = request->body;
    int status = http1_chunked_feed(&request->chunked, (const char *)bytes, len, &consumed,
                                    (char *)body->data + have, body->capacity - have, &produced);
    body->len += produced;
    access_charge(conn, produced); /* now: whoever never ends it has sent it all the same */
    assert(consumed <= len);
    assert(produced <= consumed && body->len <= body->capacity);
    if (status == 1) {
        finish_request(conn, body->data, body->len);
    } else if (status < 0) {
        struct slot *slot = conn_slot(conn, request->slot);
        refuse(conn, slot, status == -3 ? PROBLEM_BODY_TOO_LARGE : PROBLEM_BAD_CHUNKED, 0, false);
    }
    return consumed;
}

static size_t input_head(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct client *client = client_of(conn);
    struct http1_request head;
    /* Blank lines before a request are tolerated, as RFC 9112 section 2.2 asks. */
    size_t skip = 0;
    while (client->head_seen == 0 && skip + 1 < len && bytes[skip] == '\r' &&
           bytes[skip + 1] == '\n')
        skip += 2;
    if (skip > 0 || (client->head_seen == 0 && len == 1 && bytes[0] == '\r'))
        return skip;
    int used = http1_parse_head((const char *)bytes, len, client->head_seen, &head);
    if (used == HTTP1_PARTIAL) {
        if (client->head_seen == 0)
            conn->since_ms = conn->loop->now_ms;
        client->head_seen = len;
        return 0;
    }
    client->head_seen = 0;
    if (used == HTTP1_ERROR) {
        struct slot *slot = slot_open(conn);
        if (slot == NULL) {
            conn_close(conn);
            return 0;
        }
        conn_reactor(conn)->requests++;
        refuse(conn, slot, head_problem(head.error_status), 0, false);
        return len;
    }
    assert(used > 0 && (size_t)used <= len); /* PARTIAL and ERROR are done with */
    begin_request(conn, &head, bytes, (size_t)used);
    /* A body that is already here, or empty, is handled by the caller's next turn. */
    bool open = client->state == STATE_BODY || client->state == STATE_CHUNKED;
    if (client->state == STATE_BODY && client->request.body_want == 0)
        finish_request(conn, bytes + used, 0);
    else if (open && (head.chunked || len - (size_t)used < client->request.body_want) &&
             !keep_key(&client->request))
        conn_close(conn);
    if (open && (size_t)used == len)
        flush_slots(conn); /* 100 Continue, where that is asked for and its turn has come */
    return (size_t)used;
}

static size_t input_some(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct client *client = client_of(conn);
    switch (client->state) {
    case STATE_HEAD: return input_head(conn, bytes, len);
    case STATE_BODY: return input_body(conn, bytes, len);
    case STATE_CHUNKED: return input_chunked(conn, bytes, len);
    case STATE_DISCARD: {
        assert(client->discard > 0);
        size_t take = len < client->discard ? len : client->discard;
        client->discard -= take;
        if (client->discard == 0)
            client->state = STATE_HEAD;
        return take;
    }
    default: return len; /* STATE_LINGER: only until the client has read the answer */
    }
}

/* Parses until more bytes or a turn of ours are needed. Returns what was used. */
static size_t input_all(struct conn *conn, const uint8_t *bytes, size_t len)
{
    size_t used = 0;
    while (used < len && !conn->closed) {
        if (guest_of(conn)->refused >= REFUSED_PER_TURN)
            guest_yield(guest_of(conn));
        if (client_paused(conn)) {
            conn->stopped = true; /* the reason may be gone before the connection is tended */
            break;
        }
        size_t step = input_some(conn, bytes + used, len - used);
        if (step == 0)
            break;
        used += step;
    }
    assert(used <= len); /* no more than there was */
    return used;
}

static void client_slim(struct conn *conn)
{
    struct client *client = client_of(conn);
    if (conn->in_len == 0 && conn->in != NULL)
        conn_drop_input(conn);
    if (has_no_slots(conn)) {
        free(client->slots);
        client->slots = NULL;
        client->slot_capacity = 0;
    }
}

static void consume_kept(struct conn *conn)
{
    size_t used = input_all(conn, conn->in, conn->in_len);
    if (client_of(conn)->state == STATE_LINGER)
        used = conn->in_len;
    conn_used(conn, used);
    if (conn->in_len == 0 && conn->in_capacity > INPUT_KEPT_BYTES)
        client_slim(conn);
}

static void client_input(struct conn *conn, const uint8_t *bytes, size_t len)
{
    if (conn->in_len == 0) {
        size_t used = input_all(conn, bytes, len);
        bytes += used;
        len -= used;
        if (len == 0 || conn->closed || client_of(conn)->state == STATE_LINGER)
            return;
        if (!conn_keep(conn, bytes, len))
            conn_close(conn);
        return;
    }
    if (!conn_keep(conn, bytes, len))
        conn_close(conn);
    else
        consume_kept(conn);
}

static bool body_too_slow(const struct conn *conn, int64_t now_ms)
{
    const struct client *client = client_of(conn);
    int64_t age = now_ms - conn->since_ms;
    uint64_t got = client->request.body ? client->request.body->len : 0;
    return age > BODY_GRACE_MS && (int64_t)got < (age - BODY_GRACE_MS) / 1000 * BODY_BYTES_PER_S;
}

static void time_out(struct conn *conn, uint16_t problem)
{
    struct client *client = client_of(conn);
    struct slot *slot = NULL;
    if (client->state == STATE_HEAD)
        slot = slot_open(conn);
    else if (client->state == STATE_BODY || client->state == STATE_CHUNKED)
        slot = conn_slot(conn, client->request.slot);
    if (slot == NULL)
        conn_close(conn);
    else
        refuse(conn, slot, problem, 0, false);
}

static void client_deadline(struct conn *conn, int64_t now_ms)
{
    struct client *client = client_of(conn);
    int64_t age = now_ms - conn->since_ms;
    if (conn->sending && now_ms - conn->send_ms > SEND_DEADLINE_MS) {
        conn_close(conn);
    } else if (client->hearer != NULL) {
        hearer_beat(conn, now_ms); /* whatever came behind its request is not looked at */
    } else if (conn->blocked && now_ms - conn->blocked_ms > MEMORY_WAIT_MS) {
        conn->blocked = false;
        conn->blocked_ms = 0;
        time_out(conn, PROBLEM_BUSY);
    } else if (client->state == STATE_LINGER) {
        if (age > LINGER_MS && has_no_slots(conn) && !conn->sending && !transport_owes(conn))
            conn_close(conn);
    } else if (client->state == STATE_HEAD && client->head_seen > 0 && age > HEAD_DEADLINE_MS) {
        time_out(conn, PROBLEM_TIMEOUT);
    } else if ((client->state == STATE_BODY || client->state == STATE_CHUNKED) && !conn->blocked &&
               body_too_slow(conn, now_ms)) {
        time_out(conn, PROBLEM_TIMEOUT);
    } else if (client->state == STATE_DISCARD && age > SEND_DEADLINE_MS) {
        conn_close(conn); /* the refusal was sent long ago, its body never came */
    } else if (client->state == STATE_HEAD && has_no_slots(conn) && age > IDLE_DEADLINE_MS) {
        conn_close(conn);
    }
    if (client->state == STATE_LINGER || conn->peer_eof)
        conn_mark_dirty(conn);
}

/* ---- the protocol ---- */

static enum engaged client_engaged(const struct conn *conn)
{
    const struct client *client = client_of(conn);
    if (client->hearer != NULL)
        return ENGAGED;
    if (client->state == STATE_LINGER)
        return ENGAGED_LEAVES;
    if (client->state != STATE_HEAD || !has_no_slots(conn))
        return ENGAGED;
    return client->slot_end == 0 ? ENGAGED_NEVER : ENGAGED_NOT;
}

static size_t client_holds(const struct conn *conn)
{
    return client_of(conn)->slot_capacity * sizeof(struct slot) +
           (client_of(conn)->hearer != NULL ? sizeof(struct hearer) : 0);
}

static size_t client_turned_away(const struct loop *loop, char *out, size_t capacity)
{
    return answer_refusal((const struct reactor *)loop, PROBLEM_FULL, out, capacity);
}

static void client_opened(struct conn *conn)
{
    conn->kept = &conn_reactor(conn)->input_bytes;
    note_wary(client_of(conn));
    admit_came(guest_of(conn));
}

static void client_tended(struct conn *conn)
{
    if (client_of(conn)->hearer != NULL)
        hearer_tended(conn);
    if (conn->out_first != NULL || !has_no_slots(conn))
        return;
    if (conn->peer_eof && !transport_owes(conn))
        conn_close(conn);
    else if (client_of(conn)->state == STATE_LINGER && !conn->sending && !conn->peer_eof)
        conn_shutdown(conn); /* the client reads the answer, then closes */
}

/* A half-closed client still reads the answers to what it sent whole. */
static void client_half_closed(struct conn *conn)
{
    const uint8_t state = client_of(conn)->state;
    if ((has_no_slots(conn) && conn->out_first == NULL) || state == STATE_BODY ||
        state == STATE_CHUNKED || client_of(conn)->hearer != NULL) {
        conn_close(conn);
        return;
    }
    /* It may as well have gone for good: whoever waits for events on its behalf must know. */
    if (client_of(conn)->parked > 0)
        park_refuse(conn_reactor(conn), conn_id(conn));
    conn_abandoned(conn);
    conn_mark_dirty(conn);
}

static void client_closed(struct conn *conn)
{
    admit_gone(guest_of(conn));
    if (client_of(conn)->hearer != NULL)
        hearer_closed(conn);
    if (client_of(conn)->parked > 0)
        park_forget(conn_reactor(conn), conn_id(conn));
    access_forget(conn);
    conn_abandoned(conn);
}

static void client_freed(struct conn *conn)
{
    struct client *client = client_of(conn);
    assert(conn->closed && client->hearer == NULL);
    guest_unyield(guest_of(conn));
    request_clear(&client->request);
    for (uint32_t n = client->slot_first; n != client->slot_end; n++)
        slot_clear(conn, slot_at(client, n));
    assert(client->control_open == 0 && client->shown == NULL);
    free(client->slots);
}

const struct protocol client_protocol = {
    .bytes = sizeof(struct client),
    .clients = true,
    .engaged = client_engaged,
    .holds = client_holds,
    .slim = client_slim,
    .turned_away = client_turned_away,
    .opened = client_opened,
    .input = client_input,
    .room = client_room,
    .resume = consume_kept,
    .paused = client_paused,
    .tended = client_tended,
    .half_closed = client_half_closed,
    .closed = client_closed,
    .freed = client_freed,
    .deadline = client_deadline,
};
