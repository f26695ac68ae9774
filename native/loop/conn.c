#include "loop/conn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/reactor.h"
#include "http/uri.h"

/* ---- slots ---- */

struct slot *conn_slot(struct conn *conn, uint32_t number)
{
    if (number - conn->slot_first >= conn->slot_end - conn->slot_first)
        return NULL;
    return &conn->slots[number & (conn->slot_capacity - 1)];
}

static bool slots_grow(struct conn *conn)
{
    uint32_t capacity = conn->slot_capacity ? conn->slot_capacity * 2 : 4;
    struct slot *slots = calloc(capacity, sizeof *slots);
    if (slots == NULL)
        return false;
    for (uint32_t n = conn->slot_first; n != conn->slot_end; n++)
        slots[n & (capacity - 1)] = conn->slots[n & (conn->slot_capacity - 1)];
    free(conn->slots);
    conn->slots = slots;
    conn->slot_capacity = capacity;
    return true;
}

static struct slot *slot_open(struct conn *conn)
{
    if (conn->slot_end - conn->slot_first == conn->slot_capacity && !slots_grow(conn))
        return NULL;
    struct slot *slot = &conn->slots[conn->slot_end++ & (conn->slot_capacity - 1)];
    memset(slot, 0, sizeof *slot);
    return slot;
}

static void slot_clear(struct conn *conn, struct slot *slot)
{
    conn->reactor->control_bytes -= slot->held;
    control_forget(conn, slot);
    conn->reactor->asking.open[conn->address] -= slot->control;
    conn->reactor->control_open -= slot->control;
    conn->control_open -= slot->control;
    slot->held = 0;
    slot->control = false;
    outputs_free(slot->first);
    free(slot->parts);
    slot->first = slot->last = NULL;
    slot->parts = NULL;
}

static void linger(struct conn *conn)
{
    conn->state = STATE_LINGER;
    conn->since_ms = conn->reactor->now_ms;
    conn->in_len = 0;
}

/* Sends every answer whose turn has come. */
static void flush_slots(struct conn *conn)
{
    while (conn->slot_first != conn->slot_end && !conn->closed) {
        struct slot *slot = &conn->slots[conn->slot_first & (conn->slot_capacity - 1)];
        if (slot->kind == SLOT_OPEN) {
            if (slot->want_continue) {
                slot->want_continue = false;
                static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
                conn_write(conn, text, sizeof text - 1);
            }
            return;
        }
        bool close = slot->close;
        answer_render(conn, slot);
        slot_clear(conn, slot);
        conn->slot_first++;
        if (close) {
            linger(conn);
            return;
        }
    }
}

void conn_answer(struct conn *conn, struct slot *slot)
{
    if (slot == &conn->slots[conn->slot_first & (conn->slot_capacity - 1)])
        flush_slots(conn);
    /* A pipeline that was full may go on. */
    if (conn->in_len > 0 && conn->state != STATE_LINGER)
        reactor_mark_dirty(conn->reactor, conn);
}

void conn_problem(struct conn *conn, struct slot *slot, uint16_t problem)
{
    slot->kind = SLOT_PROBLEM;
    slot->problem = problem;
    conn->reactor->problems++;
    conn->refused++;
    conn_answer(conn, slot);
}

/* ---- requests ---- */

static bool is_produce_path(const struct http1_request *head, struct http1_slice *topic)
{
    static const char prefix[] = "/v1/topic/", suffix[] = "/messages";
    const char *p = head->path.p;
    uint32_t len = head->path.len;
    if (len < sizeof prefix - 1 + sizeof suffix - 1 || memcmp(p, prefix, sizeof prefix - 1) != 0 ||
        memcmp(p + len - (sizeof suffix - 1), suffix, sizeof suffix - 1) != 0)
        return false;
    topic->p = p + sizeof prefix - 1;
    topic->len = len - (uint32_t)(sizeof prefix - 1 + sizeof suffix - 1);
    return memchr(topic->p, '/', topic->len) == NULL;
}

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
    if (problem == PROBLEM_BODY_TOO_LARGE)
        slot->expected = conn->request.body_max;
    request_clear(&conn->request);
    conn->state = STATE_HEAD;
    if (!length_known || body_left > DISCARD_BODY_MAX) {
        slot->close = true;
        linger(conn); /* nothing after this request is looked at */
    } else if (body_left > 0) {
        conn->state = STATE_DISCARD;
        conn->discard = body_left;
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
    struct request *request = &conn->request;
    uint32_t held = request->body ? (uint32_t)request->body->len : 0;
    struct reactor *reactor = conn->reactor;
    if ((held > 0 && reactor->control_bytes + held > CONTROL_MEMORY_MAX) ||
        (reactor->control_open + 1) * CONTROL_REQUEST_BYTES > reactor->options.memory_max)
        return PROBLEM_BUSY;
    uint16_t problem = control_ask(conn, request->slot, request->head, request->head_len,
                                   request->body);
    if (problem != PROBLEM_NONE)
        return problem;
    reactor->control_bytes += slot->held = held;
    reactor->asking.open[conn->address]++;
    reactor->control_open++;
    conn->control_open++;
    request->head = NULL;
    request->body = NULL;
    slot->control = true;
    conn->reactor->control_requests++;
    return PROBLEM_NONE;
}

/* The request's body is complete. */
static void finish_request(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct request *request = &conn->request;
    struct slot *slot = conn_slot(conn, request->slot);
    uint16_t problem = PROBLEM_NONE;
    conn->reactor->bytes_in += len;
    slot->want_continue = false;
    conn->state = STATE_HEAD;
    if (request->control) {
        if (request->body == NULL && len > 0) {
            request->body = body_new(&conn->reactor->body_bytes, len);
            if (request->body != NULL) {
                memcpy(request->body->data, bytes, len);
                request->body->len = len;
            }
        }
        problem = finish_control(conn, slot);
    } else {
        struct waiter waiter = {.kind = WAITER_SLOT, .slot = request->slot, .conn = conn_id(conn)};
        uint64_t detail = 0;
        problem = produce_body(conn->reactor, &request->produce, waiter, slot, bytes, len,
                               request->body, &detail);
        if (problem != PROBLEM_NONE)
            slot->expected = detail;
    }
    request_clear(request);
    conn->since_ms = conn->reactor->now_ms;
    if (problem != PROBLEM_NONE)
        conn_problem(conn, slot, problem);
    else
        conn->refuser = false;
}

/* PUT /v1/writes/.../staged: events that wait for a commit, as large as a produce may be. */
static bool is_stage_path(const struct http1_request *head)
{
    static const char prefix[] = "/v1/writes/", suffix[] = "/staged";
    const char *p = head->path.p;
    uint32_t len = head->path.len;
    return head->method == HTTP1_PUT && len > sizeof prefix + sizeof suffix &&
           memcmp(p, prefix, sizeof prefix - 1) == 0 &&
           memcmp(p + len - (sizeof suffix - 1), suffix, sizeof suffix - 1) == 0;
}

static bool keep_head(struct conn *conn, const struct http1_request *head, const uint8_t *bytes,
                      size_t len)
{
    struct request *request = &conn->request;
    bool replaces = head->method == HTTP1_PUT || head->method == HTTP1_PATCH;
    request->control = true;
    request->body_max = replaces ? CONTROL_BODY_MAX : CONTROL_ASK_BODY_MAX;
    if (is_stage_path(head))
        request->body_max = conn->reactor->options.request_bytes_max;
    request->head = malloc(len);
    if (request->head == NULL)
        return false;
    memcpy(request->head, bytes, len);
    request->head_len = (uint32_t)len;
    return true;
}

/* The key lies in scratch memory: keep it when the body is still to come. */
static bool keep_key(struct request *request)
{
    struct produce *produce = &request->produce;
    if (!produce->has_key || request->owned_key != NULL)
        return true;
    request->owned_key = malloc(produce->key_len ? produce->key_len : 1);
    if (request->owned_key == NULL)
        return false;
    memcpy(request->owned_key, produce->key, produce->key_len);
    produce->key = request->owned_key;
    return true;
}

/* A complete head: opens the answer's slot and decides what the body is for. */
static void begin_request(struct conn *conn, const struct http1_request *head,
                          const uint8_t *bytes, size_t head_len)
{
    struct request *request = &conn->request;
    struct slot *slot = slot_open(conn);
    if (slot == NULL) {
        conn_close(conn);
        return;
    }
    request->slot = conn->slot_end - 1;
    slot->close = !head->keep_alive;
    slot->http10_keep_alive = head->keep_alive && head->minor == 0;
    slot->head_only = head->method == HTTP1_HEAD;
    request->body_want = head->content_length > 0 ? (uint64_t)head->content_length : 0;
    conn->reactor->requests++;
    conn->since_ms = conn->reactor->now_ms;
    struct http1_slice topic;
    uint16_t problem = request_origin(conn, head);
    bool produce = head->method == HTTP1_POST && is_produce_path(head, &topic);
    if (problem != PROBLEM_NONE) {
        request->body_max = UINT64_MAX;
    } else if (produce) {
        conn->reactor->produce_requests++;
        request->body_max = conn->reactor->options.request_bytes_max;
        if (head->content_length < 0 && !head->chunked)
            problem = PROBLEM_LENGTH_REQUIRED;
        else
            problem = produce_head(conn, head, topic, slot, &request->produce);
    } else if (!keep_head(conn, head, bytes, head_len)) {
        problem = PROBLEM_BUSY;
    }
    if (problem == PROBLEM_NONE && request->body_want > request->body_max)
        problem = PROBLEM_BODY_TOO_LARGE;
    if (problem != PROBLEM_NONE) {
        /* A client that waits for 100 Continue sends no body once it reads the refusal. */
        refuse(conn, slot, problem, request->body_want, !head->chunked && !head->expect_continue);
        return;
    }
    if (head->chunked) {
        http1_chunked_init(&request->chunked, request->body_max);
        conn->state = STATE_CHUNKED;
    } else {
        conn->state = STATE_BODY;
    }
    slot->want_continue = head->expect_continue && (head->chunked || request->body_want > 0);
}

/* Asks for memory before it is taken. False: the connection waits, at most MEMORY_WAIT_MS in all
 * until it gets some, however often others wake it: those who wait hold what others wait for. */
static bool has_memory(struct conn *conn, size_t bytes)
{
    struct reactor *reactor = conn->reactor;
    if (reactor_memory(reactor, bytes)) {
        conn->blocked_ms = 0;
        return true;
    }
    if (conn->blocked_ms == 0)
        conn->blocked_ms = reactor->now_ms;
    conn->blocked = reactor->blocked_any = true;
    return false;
}

/* Makes room for a body of up to want bytes. False: wait for memory. */
static bool make_room(struct conn *conn, size_t want)
{
    struct reactor *reactor = conn->reactor;
    struct body *body = conn->request.body;
    size_t have = body ? body->capacity : 0;
    if (want <= have)
        return true;
    if (!has_memory(conn, want - have))
        return false;
    if (body == NULL) {
        conn->request.body = body_new(&reactor->body_bytes, want);
        return conn->request.body != NULL;
    }
    return body_reserve(body, want);
}

/* How much to reserve now: all at once while memory is plentiful, else as the bytes come, so that
 * slow senders of large bodies cannot hold what they do not use. */
static size_t body_goal(const struct conn *conn, uint64_t total, size_t now)
{
    if (total <= (256u << 10) || reactor_memory(conn->reactor, total * 3))
        return total;
    size_t doubled = now * 2 > (256u << 10) ? now * 2 : (256u << 10);
    return doubled < total ? doubled : total;
}

static size_t input_body(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct request *request = &conn->request;
    size_t have = request->body ? request->body->len : 0;
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
    if (!keep_key(request) || !make_room(conn, body_goal(conn, request->body_want, have + take)))
        return 0;
    struct body *body = request->body;
    memcpy(body->data + body->len, bytes, take);
    body->len += take;
    if (body->len == request->body_want)
        finish_request(conn, body->data, body->len);
    return take;
}

static size_t input_chunked(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct request *request = &conn->request;
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
    struct http1_request head;
    /* Blank lines before a request are tolerated, as RFC 9112 section 2.2 asks. */
    size_t skip = 0;
    while (conn->head_seen == 0 && skip + 1 < len && bytes[skip] == '\r' && bytes[skip + 1] == '\n')
        skip += 2;
    if (skip > 0 || (conn->head_seen == 0 && len == 1 && bytes[0] == '\r'))
        return skip;
    int used = http1_parse_head((const char *)bytes, len, conn->head_seen, &head);
    if (used == HTTP1_PARTIAL) {
        if (conn->head_seen == 0)
            conn->since_ms = conn->reactor->now_ms;
        conn->head_seen = len;
        return 0;
    }
    conn->head_seen = 0;
    if (used == HTTP1_ERROR) {
        struct slot *slot = slot_open(conn);
        if (slot == NULL) {
            conn_close(conn);
            return 0;
        }
        conn->reactor->requests++;
        refuse(conn, slot, head_problem(head.error_status), 0, false);
        return len;
    }
    begin_request(conn, &head, bytes, (size_t)used);
    /* A body that is already here, or empty, is handled by the caller's next turn. */
    bool open = conn->state == STATE_BODY || conn->state == STATE_CHUNKED;
    if (conn->state == STATE_BODY && conn->request.body_want == 0)
        finish_request(conn, bytes + used, 0);
    else if (open && (head.chunked || len - (size_t)used < conn->request.body_want) &&
             !keep_key(&conn->request))
        conn_close(conn);
    if (open && (size_t)used == len)
        flush_slots(conn); /* 100 Continue, where that is asked for and its turn has come */
    return (size_t)used;
}

static size_t input_some(struct conn *conn, const uint8_t *bytes, size_t len)
{
    switch (conn->state) {
    case STATE_HEAD: return input_head(conn, bytes, len);
    case STATE_BODY: return input_body(conn, bytes, len);
    case STATE_CHUNKED: return input_chunked(conn, bytes, len);
    case STATE_DISCARD: {
        size_t take = len < conn->discard ? len : conn->discard;
        conn->discard -= take;
        if (conn->discard == 0)
            conn->state = STATE_HEAD;
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
        if (conn->refused >= REFUSED_PER_TURN)
            conn_yield(conn);
        if (conn_paused(conn)) {
            conn->stopped = true; /* the reason may be gone before the connection is tended */
            break;
        }
        size_t step = input_some(conn, bytes + used, len - used);
        if (step == 0)
            break;
        used += step;
    }
    return used;
}

/* Frames of other processes have a bound of their own. */
static uint64_t *kept_account(struct conn *conn)
{
    struct reactor *reactor = conn->reactor;
    return conn->kind == CONN_PEER ? &reactor->partial_bytes : &reactor->input_bytes;
}

static bool keep_input(struct conn *conn, const uint8_t *bytes, size_t len)
{
    if (conn->in_len + len > conn->in_capacity) {
        size_t capacity = conn->in_len + len;
        capacity = capacity < 4096 ? 4096 : capacity + capacity / 2;
        uint8_t *in = realloc(conn->in, capacity);
        if (in == NULL)
            return false;
        *kept_account(conn) += capacity - conn->in_capacity;
        conn->in = in;
        conn->in_capacity = capacity;
    }
    memcpy(conn->in + conn->in_len, bytes, len);
    conn->in_len += len;
    return true;
}

static void consume_kept(struct conn *conn)
{
    size_t used = conn->kind == CONN_HTTP ? input_all(conn, conn->in, conn->in_len) : 0;
    if (conn->state == STATE_LINGER)
        used = conn->in_len;
    if (used > 0 && used < conn->in_len)
        memmove(conn->in, conn->in + used, conn->in_len - used);
    conn->in_len -= used;
    if (conn->in_len == 0 && conn->in_capacity > INPUT_KEPT_BYTES)
        conn_slim(conn);
}

/* Frames that have begun do not take more than half of the budget: whoever has most of it goes. */
static void bound_partials(struct reactor *reactor)
{
    if (reactor->partial_bytes <= reactor->options.memory_max / 2)
        return;
    struct conn *most = NULL;
    for (struct conn *conn = reactor->conns; conn != NULL; conn = conn->next)
        if (conn->kind == CONN_PEER && !conn->closed &&
            (most == NULL || conn->in_capacity > most->in_capacity))
            most = conn;
    if (most == NULL)
        return;
    reactor->partial_bytes -= most->in_capacity;
    free(most->in);
    most->in = NULL;
    most->in_len = most->in_capacity = 0;
    conn_close(most);
}

/* Frames of another worker; what is over of a large one is given back. */
static void peer_input(struct conn *conn)
{
    const size_t before = conn->in_len;
    handoff_input(conn);
    if (conn->in_len < before) /* a frame has ended: the next one has its own time */
        conn->since_ms = conn->reactor->now_ms;
    if (conn->in_len == 0 && conn->in_capacity > 65536) {
        conn->reactor->partial_bytes -= conn->in_capacity;
        free(conn->in);
        conn->in = NULL;
        conn->in_capacity = 0;
    }
}

void conn_input(struct conn *conn, const uint8_t *bytes, size_t len)
{
    if (conn->kind == CONN_REPLICA) {
        intake_input(conn, bytes, len);
        return;
    }
    if (conn->kind == CONN_PEER) {
        if (conn->in_len == 0)
            conn->since_ms = conn->reactor->now_ms;
        bound_partials(conn->reactor);
        if (conn->closed)
            return;
        if (!keep_input(conn, bytes, len))
            conn_close(conn);
        else
            peer_input(conn);
        return;
    }
    if (conn->in_len == 0) {
        size_t used = input_all(conn, bytes, len);
        bytes += used;
        len -= used;
        if (len == 0 || conn->closed || conn->state == STATE_LINGER)
            return;
        if (!keep_input(conn, bytes, len))
            conn_close(conn);
        return;
    }
    if (!keep_input(conn, bytes, len))
        conn_close(conn);
    else
        consume_kept(conn);
}

void conn_resume(struct conn *conn)
{
    conn->blocked = false;
    if (conn->kind == CONN_PEER)
        peer_input(conn);
    else if (conn->in_len > 0)
        consume_kept(conn);
}

/* ---- life ---- */

struct conn *conn_new(struct reactor *reactor, int fd, uint8_t kind)
{
    struct conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL)
        return NULL;
    conn->reactor = reactor;
    conn->fd = fd;
    conn->kind = kind;
    conn->since_ms = reactor->now_ms;
    return conn;
}

void conn_free(struct conn *conn)
{
    request_clear(&conn->request);
    for (uint32_t n = conn->slot_first; n != conn->slot_end; n++)
        slot_clear(conn, &conn->slots[n & (conn->slot_capacity - 1)]);
    free(conn->slots);
    outputs_free(conn->out_first);
    frames_free(conn->frames);
    *kept_account(conn) -= conn->in_capacity;
    free(conn->in);
    free(conn);
}

void conn_close(struct conn *conn)
{
    if (conn->closed)
        return;
    conn->closed = true;
    struct reactor *reactor = conn->reactor;
    reactor->admission.places -= conn->kind == CONN_HTTP;
    conn_abandoned(conn);
    if (conn->kind == CONN_PEER)
        handoff_lost(reactor, conn);
    if (conn->kind == CONN_REPLICA)
        intake_lost(conn);
    conn->next_closing = reactor->closing;
    reactor->closing = conn;
    reactor->net->close(reactor->net, conn);
}

static bool body_too_slow(const struct conn *conn, int64_t now_ms)
{
    int64_t age = now_ms - conn->since_ms;
    uint64_t got = conn->request.body ? conn->request.body->len : 0;
    return age > BODY_GRACE_MS && (int64_t)got < (age - BODY_GRACE_MS) / 1000 * BODY_BYTES_PER_S;
}

static void time_out(struct conn *conn, uint16_t problem)
{
    struct slot *slot = NULL;
    if (conn->state == STATE_HEAD)
        slot = slot_open(conn);
    else if (conn->state == STATE_BODY || conn->state == STATE_CHUNKED)
        slot = conn_slot(conn, conn->request.slot);
    if (slot == NULL)
        conn_close(conn);
    else
        refuse(conn, slot, problem, 0, false);
}

/* Another process began a frame, and does not go on with it. */
static bool frame_too_slow(const struct conn *conn, int64_t now_ms)
{
    const struct frames *f = conn->frames;
    const size_t got = f != NULL ? f->filled + (size_t)f->group_filled : conn->in_len;
    const int64_t age = now_ms - conn->since_ms - FRAME_GRACE_MS;
    return got > 0 && age > 0 && !conn->paused && !conn->blocked &&
           (int64_t)got < age * FRAME_BYTES_PER_MS;
}

void conn_deadlines(struct conn *conn, int64_t now_ms)
{
    if (conn->closed)
        return;
    if (conn->kind != CONN_HTTP) {
        if (frame_too_slow(conn, now_ms))
            conn_close(conn);
        return;
    }
    int64_t age = now_ms - conn->since_ms;
    if (conn->sending && now_ms - conn->send_ms > SEND_DEADLINE_MS) {
        conn_close(conn);
    } else if (conn->blocked && now_ms - conn->blocked_ms > MEMORY_WAIT_MS) {
        conn->blocked = false;
        conn->blocked_ms = 0;
        time_out(conn, PROBLEM_BUSY);
    } else if (conn->state == STATE_LINGER) {
        if (age > LINGER_MS && conn->slot_first == conn->slot_end && !conn->sending)
            conn_close(conn);
    } else if (conn->state == STATE_HEAD && conn->head_seen > 0 && age > HEAD_DEADLINE_MS) {
        time_out(conn, PROBLEM_TIMEOUT);
    } else if ((conn->state == STATE_BODY || conn->state == STATE_CHUNKED) && !conn->blocked &&
               body_too_slow(conn, now_ms)) {
        time_out(conn, PROBLEM_TIMEOUT);
    } else if (conn->state == STATE_DISCARD && age > SEND_DEADLINE_MS) {
        conn_close(conn); /* the refusal was sent long ago, its body never came */
    } else if (conn->state == STATE_HEAD && conn->slot_first == conn->slot_end &&
               age > IDLE_DEADLINE_MS) {
        conn_close(conn);
    }
}
