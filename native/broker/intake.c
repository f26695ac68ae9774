#include "broker/intake.h"
#include "log/replica.h"
#include "loop/seal.h"
#include "loop/tls.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- the usual case ---- */

/* A group that is the next one of what is followed, by all that is said of it. */
static bool is_next(const struct log *log, const uint8_t *message, uint32_t message_bytes,
                    uint32_t group_bytes, struct append_message *out)
{
    return append_message_read(message, message_bytes, out) &&
           out->token == log->options.range_token && out->epoch == log->options.epoch &&
           out->session == log->options.session && out->gseq == log->next_gseq &&
           out->prev_crc == log->prev_crc && out->bytes == group_bytes;
}

static bool is_armed_for(const struct conn *conn)
{
    const struct intake *intake = &conn_reactor(conn)->intake;
    return intake->armed && intake->conn_id == conn_id(conn);
}

static void show_committed(struct reactor *reactor)
{
    struct log *log = reactor->log;
    const uint64_t committed = reactor->intake.committed;
    log_replicated(log, committed < log->stable_gseq ? committed : log->stable_gseq);
}

static bool take(struct conn *conn, const uint8_t *message, uint32_t message_bytes,
                 const uint8_t *group, uint32_t group_bytes)
{
    struct reactor *reactor = conn_reactor(conn);
    struct intake *intake = &reactor->intake;
    struct log *log = reactor->log;
    struct append_message append;
    struct group_header header;
    if (!is_armed_for(conn) || !is_next(log, message, message_bytes, group_bytes, &append))
        return false;
    if (group_header_read(group, group_bytes, &header) != 0 ||
        header.header_crc != append.header_crc)
        return false;
    if (log->next_gseq - 1 - log->stable_gseq >= INTAKE_WAITING_MAX &&
        group_bytes <= INTAKE_KEPT_BYTES_MAX)
        return false;
    if (log_take(log, group, group_bytes) != FOREIGN_TAKEN)
        return false; /* Python hears why when it tries */
    assert(log->next_gseq == append.gseq + 1 && log->prev_crc == append.header_crc);
    struct intake_news *news = &intake->news;
    news->any = true;
    news->epoch = append.epoch;
    news->taken = append.gseq;
    news->taken_crc = append.header_crc;
    if (append.committed > intake->committed) {
        news->committed = intake->committed = append.committed;
        show_committed(reactor);
    }
    intake->groups++;
    return true;
}

/* The log's end is anybody's again: what has been put there of a frame goes elsewhere. */
static void unplace(struct reactor *reactor)
{
    struct conn *conn = loop_conn(&reactor->loop, reactor->intake.conn_id);
    struct frames *f = conn != NULL ? replica_of(conn)->frames : NULL;
    if (f == NULL || !f->placed)
        return;
    assert(f->group != NULL && f->group_filled <= f->group_bytes);
    uint8_t *copy = malloc(f->group_bytes);
    if (copy != NULL)
        memcpy(copy, f->group, f->group_filled);
    f->group = copy;
    f->placed = false;
    if (copy == NULL)
        conn_close(conn);
}

void intake_disarm(struct reactor *reactor)
{
    if (!reactor->intake.armed)
        return;
    reactor->intake.armed = false;
    seal_drop(reactor->intake.answer_seal);
    reactor->intake.answer_seal = NULL;
    unplace(reactor);
}

bool intake_arm(struct reactor *reactor, uint64_t conn_id, int answer_fd, struct seal *answer_seal,
                uint64_t gseq, uint32_t header_crc, uint64_t committed)
{
    const struct log *log = reactor->log;
    const struct conn *conn = loop_conn(&reactor->loop, conn_id);
    struct intake *intake = &reactor->intake;
    if (intake->conn_id != conn_id)
        intake_disarm(reactor);
    if (conn == NULL || conn->closed || conn->protocol != &replica_protocol || !log->following ||
        log->draining || log->failed || log->next_gseq != gseq + 1 ||
        (gseq > 0 && log->prev_crc != header_crc) ||
        (intake->news.any && intake->news.epoch != log->options.epoch)) { /* not heard yet */
        intake_disarm(reactor);
        return false;
    }
    assert(answer_fd >= 0);
    intake->armed = true;
    intake->conn_id = conn_id;
    intake->answer_fd = answer_fd;
    seal_keep(answer_seal);
    seal_drop(intake->answer_seal);
    intake->answer_seal = answer_seal;
    intake->committed = committed;
    return true;
}

static bool all_sent(const struct intake *intake)
{
    size_t unsent = 0;
    if (intake->answer_seal != NULL)
        seal_unsent(intake->answer_seal, &unsent);
    return unsent == 0;
}

bool intake_landed(struct reactor *reactor)
{
    struct intake *intake = &reactor->intake;
    const struct log *log = reactor->log;
    if (!intake->armed)
        return false;
    assert(log->stable_gseq < log->next_gseq); /* the leader hears of what was taken */
    struct appended_frame frame = {.token = log->options.range_token,
                                   .epoch = log->options.epoch,
                                   .session = log->options.session,
                                   .gseq = log->stable_gseq};
    appended_frame_seal(&frame);
    struct iovec part = {&frame, sizeof frame};
    const struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    const ssize_t sent = seal_or_send(intake->answer_seal, intake->answer_fd, &message);
    /* What was sealed, and not sent whole, goes before what Python says. */
    if (sent != (ssize_t)sizeof frame || !all_sent(intake)) {
        if (sent > 0 && sent < (ssize_t)sizeof frame) /* half a frame: nothing can follow it */
            shutdown(intake->answer_fd, SHUT_RDWR);
        intake_disarm(reactor);
        return false;
    }
    intake->news.any = true;
    intake->news.epoch = log->options.epoch;
    intake->news.stable = log->stable_gseq;
    intake->news.stable_crc = log->stable_crc;
    intake->sent_bytes += sizeof frame;
    show_committed(reactor);
    return true;
}

/* ---- frames ---- */

struct frames *frames_new(uint32_t group_bytes_max)
{
    struct frames *frames = calloc(1, sizeof *frames);
    if (frames != NULL)
        frames->group_bytes_max = group_bytes_max;
    return frames;
}

static void begin_anew(struct frames *f)
{
    if (!f->placed)
        free(f->group);
    f->group = NULL;
    f->placed = false;
    f->filled = f->group_filled = f->message_bytes = f->group_bytes = 0;
}

void frames_free(struct frames *frames)
{
    if (frames == NULL)
        return;
    begin_anew(frames);
    free(frames->start);
    free(frames);
}

static void hand_over(struct conn *conn, const uint8_t *message, uint32_t message_bytes,
                      const uint8_t *group, uint32_t group_bytes)
{
    assert(message_bytes > 0 && message_bytes <= FRAME_MESSAGE_BYTES_MAX); /* read_lengths */
    const size_t len = (size_t)message_bytes + group_bytes;
    uint8_t *copy = malloc(len);
    if (copy == NULL) {
        conn_close(conn);
        return;
    }
    memcpy(copy, message, message_bytes);
    if (group_bytes > 0)
        memcpy(copy + message_bytes, group, group_bytes);
    struct upcall *up = reactor_upcall(conn_reactor(conn), UPCALL_FRAME, conn_id(conn));
    up->head = copy;
    up->head_len = message_bytes;
    up->bytes = group_bytes;
    intake_disarm(conn_reactor(conn));
}

static void frame_arrived(struct conn *conn, const uint8_t *message, uint32_t message_bytes,
                          const uint8_t *group, uint32_t group_bytes)
{
    if (!take(conn, message, message_bytes, group, group_bytes))
        hand_over(conn, message, message_bytes, group, group_bytes);
}

/* Whether lengths are such as we send. */
static bool read_lengths(const struct frames *f, const uint8_t *head, uint32_t *message_bytes,
                         uint32_t *group_bytes)
{
    memcpy(message_bytes, head, 4);
    memcpy(group_bytes, head + 4, 4);
    return *message_bytes > 0 && *message_bytes <= FRAME_MESSAGE_BYTES_MAX &&
           *group_bytes <= f->group_bytes_max;
}

/* The group is put behind the log's end at once, where that is where it will be wanted. */
static void make_room(struct conn *conn)
{
    struct frames *f = replica_of(conn)->frames;
    struct log *log = conn_reactor(conn)->log;
    struct append_message append;
    assert(f->group == NULL && !f->placed && f->group_bytes > 0);
    if (is_armed_for(conn) &&
        is_next(log, f->start + FRAME_HEAD_BYTES, f->message_bytes, f->group_bytes, &append))
        f->group = log_place(log, f->group_bytes);
    f->placed = f->group != NULL;
    if (!f->placed)
        f->group = malloc(f->group_bytes);
    if (f->group == NULL)
        conn_close(conn);
}

/* Up to want bytes behind *filled; false: there is no memory. */
static bool collect(struct frames *f, uint32_t want, const uint8_t **bytes, size_t *len)
{
    if (f->start_capacity < want) {
        uint8_t *start = realloc(f->start, want);
        if (start == NULL)
            return false;
        f->start = start;
        f->start_capacity = want;
    }
    assert(f->filled <= want);
    uint32_t part = want - f->filled;
    part = part < *len ? part : (uint32_t)*len;
    memcpy(f->start + f->filled, *bytes, part);
    f->filled += part;
    assert(f->filled <= f->start_capacity);
    *bytes += part;
    *len -= part;
    return true;
}

static void collect_group(struct frames *f, const uint8_t **bytes, size_t *len)
{
    assert(f->group != NULL && f->group_filled <= f->group_bytes);
    uint32_t part = f->group_bytes - f->group_filled;
    part = part < *len ? part : (uint32_t)*len;
    memcpy(f->group + f->group_filled, *bytes, part);
    f->group_filled += part;
    assert(f->group_filled <= f->group_bytes);
    *bytes += part;
    *len -= part;
}

/* More of a frame of which something is here. False: the connection is of no use any more. */
static bool go_on(struct conn *conn, const uint8_t **bytes, size_t *len)
{
    struct frames *f = replica_of(conn)->frames;
    if (f->message_bytes == 0) {
        if (!collect(f, FRAME_HEAD_BYTES, bytes, len))
            return false;
        if (f->filled < FRAME_HEAD_BYTES)
            return true;
        if (!read_lengths(f, f->start, &f->message_bytes, &f->group_bytes))
            return false;
    }
    const uint32_t body = FRAME_HEAD_BYTES + f->message_bytes;
    if (f->filled < body && !collect(f, body, bytes, len))
        return false;
    if (f->filled < body)
        return true;
    if (f->group_bytes > 0 && f->group == NULL) {
        make_room(conn);
        if (conn->closed)
            return true;
    }
    if (f->group_bytes > 0)
        collect_group(f, bytes, len);
    if (f->group_filled == f->group_bytes) {
        /* Before the log takes it, or Python, whatever follows is not this frame's any more. */
        frame_arrived(conn, f->start + FRAME_HEAD_BYTES, f->message_bytes, f->group,
                      f->group_bytes);
        begin_anew(f);
    }
    return true;
}

static void replica_input(struct conn *conn, const uint8_t *bytes, size_t len)
{
    struct frames *f = replica_of(conn)->frames;
    while (len > 0 && !conn->closed) {
        uint32_t message_bytes, group_bytes;
        if (f->filled == 0 && len >= FRAME_HEAD_BYTES) {
            if (!read_lengths(f, bytes, &message_bytes, &group_bytes)) {
                conn_close(conn);
                return;
            }
            const size_t whole = (size_t)FRAME_HEAD_BYTES + message_bytes + group_bytes;
            if (whole <= len) { /* mostly: all of it came at once */
                const uint8_t *message = bytes + FRAME_HEAD_BYTES;
                frame_arrived(conn, message, message_bytes, message + message_bytes, group_bytes);
                bytes += whole;
                len -= whole;
                continue;
            }
        }
        if (f->filled == 0)
            conn->since_ms = conn->loop->now_ms; /* frame_too_slow() */
        if (!go_on(conn, &bytes, &len)) {
            conn_close(conn);
            return;
        }
    }
}

static void replica_closed(struct conn *conn)
{
    if (is_armed_for(conn))
        intake_disarm(conn_reactor(conn));
    reactor_upcall(conn_reactor(conn), UPCALL_REPLICA_CLOSED, conn_id(conn));
}

static void replica_opened(struct conn *conn) { conn->kept = &conn_reactor(conn)->input_bytes; }

static void replica_freed(struct conn *conn) { frames_free(replica_of(conn)->frames); }

static void replica_deadline(struct conn *conn, int64_t now_ms)
{
    const struct frames *f = replica_of(conn)->frames;
    if (f != NULL && frame_too_slow(conn, f->filled + (size_t)f->group_filled, now_ms))
        conn_close(conn);
}

/* It keeps its frames itself, so there is nothing to resume. */
const struct protocol replica_protocol = {
    .bytes = sizeof(struct replica_conn),
    .opened = replica_opened,
    .input = replica_input,
    .closed = replica_closed,
    .freed = replica_freed,
    .deadline = replica_deadline,
};

struct conn *reactor_adopt_replica(struct reactor *reactor, int fd, uint32_t group_bytes_max,
                                   struct seal *seal)
{
    struct frames *frames = frames_new(group_bytes_max);
    if (frames == NULL) {
        close(fd);
        return NULL;
    }
    struct conn *conn = tls_adopt(&reactor->loop, fd, &replica_protocol, seal);
    if (conn != NULL)
        replica_of(conn)->frames = frames;
    else
        frames_free(frames);
    return conn;
}
