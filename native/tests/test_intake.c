/* Frames of a leader, usual and hostile, in pieces of any size, with the intake armed or not: each
 * is either taken and acknowledged when it is stable, or handed over as it came; and the log is,
 * byte for byte, that of a follower which got the same groups one by one. */
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "broker/reactor.h"
#include "log/replica.h"
#include "replica_testing.h"

#define EPOCH 2u
#define FRAME_MAX (1u << 20)
#define STEPS 1500
#define MESSAGE_BYTES ((uint32_t)sizeof(struct append_message))

static struct member leader, twin;
static struct reactor *reactor;
static struct conn *conn, *table[1];
static uint8_t *disk[DISKS];
static struct append *writes[8];
static uint32_t write_count;
static int ends[2];
static uint64_t seed, last;

static uint32_t below(uint32_t end) { return (uint32_t)(random_next(&seed) % end); }

/* ---- a network and a disk that wait to be told ---- */

static void no_net_free(struct net *net) {}
static void no_conn(struct net *net, struct conn *c) {}
static bool no_submit(struct net *net) { return true; }
static void note_write(struct net *net, struct write *write, const void *bytes, size_t len,
                       uint64_t offset)
{
    struct append *append = (struct append *)write;
    CHECK(write_count < 8 && append->file_offset + append->bytes <= DISK_BYTES);
    memcpy(disk[write->fd] + append->file_offset, bytes, len);
    writes[write_count++] = append;
}

static void begin_frame(void)
{
    struct frames *f = replica_of(conn)->frames;
    f->filled = f->message_bytes = f->group_bytes = 0;
}

/* Completes the oldest write, if one is on its way. */
static void land(struct net *net, int64_t timeout_ns)
{
    if (write_count == 0)
        return;
    struct append *append = writes[0];
    memmove(writes, writes + 1, --write_count * sizeof *writes);
    append->write.done(&append->write, append->bytes);
}

static struct net no_net = {.name = "none", .free = no_net_free, .adopt = no_conn,
                            .recv_start = no_conn, .recv_stop = no_conn, .close = no_conn,
                            .write = note_write, .submit = no_submit, .wait = land};

static void start(void)
{
    struct reactor_options options = {
        .log = {.arena_bytes = ARENA_BYTES, .acceleration = 1},
        .request_bytes_max = 256u << 10, .event_bytes_max = 64u << 10, .memory_max = 1u << 20,
        .workers = 1, .slices = 8, .slice_last = 7, .ring_size = 1, .connections_max = 10,
        .range_start = INT64_MIN, .auto_create = true, .engine = 2};
    const char *error;
    reactor = reactor_new(&options, &error);
    CHECK(reactor != NULL);
    reactor->loop.net->free(reactor->loop.net);
    reactor->loop.net = &no_net;
    last = 0;
    reactor->loop.table = table;
    reactor->loop.table_used = reactor->loop.table_capacity = 1;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    conn = conn_new(&reactor->loop, -1, &replica_protocol, &plain_transport);
    conn->generation = 1;
    replica_of(conn)->frames = frames_new(FRAME_MAX);
    table[0] = conn;
    join(&leader);
    join(&twin);
    leader.log->options.range_token = twin.log->options.range_token =
        reactor->log->options.range_token;
    lead(&leader, EPOCH);
    follow(&twin, EPOCH);
    log_begin(reactor->log, EPOCH, EPOCH * 100, true);
    for (uint32_t i = 0; i < DISKS; i++) {
        disk[i] = calloc(1, DISK_BYTES);
        log_add_segment(reactor->log, i, (int)i, DISK_BYTES);
    }
    log_follow(reactor->log);
}

static void drop_upcalls(void)
{
    for (uint32_t i = 0; i < reactor->upcall_count; i++)
        free(reactor->upcalls[i].head);
    reactor->upcall_count = 0;
}

static void stop(void)
{
    conn_close(conn);
    CHECK(!reactor->intake.armed);
    conn_free(conn);
    drop_upcalls();
    reactor->loop.table = NULL;
    reactor->loop.closing = reactor->loop.dirty = NULL;
    reactor_free(reactor);
    leave(&leader);
    leave(&twin);
    for (uint32_t i = 0; i < DISKS; i++)
        free(disk[i]);
    close(ends[0]);
    close(ends[1]);
}

/* ---- messages ---- */

static void write_message(const struct append_message *m, uint8_t *out)
{
    struct append_message sealed = *m;
    sealed.mark = FIXED_MARK;
    sealed.kind = FIXED_APPEND;
    sealed.frame_crc = crc32c(0, &sealed, offsetof(struct append_message, frame_crc));
    memcpy(out, &sealed, sizeof sealed);
}

static struct append_message message_of(uint64_t gseq)
{
    struct group_header h;
    CHECK(group_header_read(leader.sent[gseq], leader.sent_bytes[gseq], &h) == 0);
    return (struct append_message){
        .token = h.token, .epoch = h.epoch, .session = h.session, .gseq = gseq,
        .committed = h.committed, .prev_crc = h.prev_crc, .header_crc = h.header_crc,
        .bytes = h.group_bytes};
}

/* In memory of exactly this length: nothing is read beyond it. */
static bool is_read(const uint8_t *bytes, size_t len, struct append_message *out)
{
    uint8_t *copy = malloc(len ? len : 1);
    memcpy(copy, bytes, len);
    const bool read = append_message_read(copy, len, out);
    free(copy);
    return read;
}

static void test_messages(void)
{
    const int64_t tokens[] = {0, 5, -1, -70000, 1 << 20, INT64_MIN, INT64_MAX};
    uint8_t bytes[2 * MESSAGE_BYTES] = {0};
    struct append_message out;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const struct append_message in = {
            .token = tokens[i], .epoch = i + 1, .session = i ? UINT64_MAX - i : 0,
            .gseq = 1000 * i + 1, .committed = i, .prev_crc = UINT32_MAX, .header_crc = 7,
            .bytes = 4096};
        write_message(&in, bytes);
        CHECK(is_read(bytes, MESSAGE_BYTES, &out));
        CHECK(out.token == in.token && out.epoch == in.epoch && out.session == in.session &&
              out.gseq == in.gseq && out.committed == in.committed &&
              out.prev_crc == in.prev_crc && out.header_crc == in.header_crc &&
              out.bytes == in.bytes);
        for (size_t len = 0; len <= sizeof bytes; len++)
            CHECK(is_read(bytes, len, &out) == (len == MESSAGE_BYTES));
        for (uint32_t bit = 0; bit < 8 * MESSAGE_BYTES; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            CHECK(!is_read(bytes, MESSAGE_BYTES, &out));
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

/* The checksum is right: what another writer may write. */
static void test_messages_that_hold_what_they_can_not(void)
{
    const uint64_t far = (uint64_t)INT64_MAX + 1;
    const struct append_message bad[] = {
        {.epoch = 0, .gseq = 1}, {.epoch = far, .gseq = 1}, {.epoch = 1, .gseq = 0},
        {.epoch = 1, .gseq = far}, {.epoch = 1, .gseq = 1, .committed = far},
        {.epoch = 1, .gseq = 1, .zero_0 = 1}, {.epoch = 1, .gseq = 1, .zero_1 = 1}};
    const struct append_message most = {.epoch = far - 1, .gseq = far - 1, .committed = far - 1};
    uint8_t bytes[MESSAGE_BYTES];
    struct append_message out;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_message(&bad[i], bytes);
        CHECK(!is_read(bytes, MESSAGE_BYTES, &out));
    }
    write_message(&most, bytes);
    CHECK(is_read(bytes, MESSAGE_BYTES, &out));
}

/* ---- frames ---- */

static uint8_t frame[FRAME_MAX + 4096];

static uint32_t write_frame(const struct append_message *m, const uint8_t *group, uint32_t len)
{
    const uint32_t head[2] = {MESSAGE_BYTES, len};
    memcpy(frame, head, sizeof head);
    write_message(m, frame + FRAME_HEAD_BYTES);
    memcpy(frame + FRAME_HEAD_BYTES + MESSAGE_BYTES, group, len);
    return FRAME_HEAD_BYTES + MESSAGE_BYTES + len;
}

static void arm(void)
{
    const struct log *log = reactor->log;
    CHECK(intake_arm(reactor, conn_id(conn), ends[0], NULL, log->next_gseq - 1, log->prev_crc,
                     log->replicated));
}

/* In pieces; in between writes land, and the intake is disarmed or armed anew. */
static void feed(uint32_t len)
{
    const bool whole = below(3) == 0;
    for (uint32_t at = 0; at < len && !conn->closed;) {
        uint32_t piece = whole ? len : 1 + below(below(4) ? 70000 : 40);
        piece = piece < len - at ? piece : len - at;
        uint8_t *copy = malloc(piece);
        memcpy(copy, frame + at, piece);
        conn_input(conn, copy, piece);
        free(copy);
        at += piece;
        if (at < len && below(8) == 0)
            intake_disarm(reactor);
        if (at < len && below(8) == 0)
            arm();
        if (at < len && below(4) == 0)
            reactor_run(reactor, 0);
    }
}

/* What Python does with what it is told: the next group is taken, all else is not. */
static uint32_t hear(uint32_t len)
{
    uint32_t frames = 0;
    for (uint32_t i = 0; i < reactor->upcall_count; i++) {
        const struct upcall *up = &reactor->upcalls[i];
        if (up->kind != UPCALL_FRAME)
            continue;
        frames++;
        CHECK(up->head_len + up->bytes + FRAME_HEAD_BYTES == len);
        CHECK(memcmp(up->head, frame + FRAME_HEAD_BYTES, up->head_len + up->bytes) == 0);
        CHECK(!reactor->intake.armed);
        log_take(reactor->log, up->head + up->head_len, up->bytes);
    }
    return frames;
}

enum kind { USUAL, REPEAT, GAP, HEADER_CRC, PREV_CRC, BODY, SESSION, TOKEN, SHORT, PLAIN, FLIP,
            KINDS };

/* A frame of this kind about the next group; whether anybody takes what it brings. */
static uint32_t make(enum kind kind, uint64_t next)
{
    struct append_message m = message_of(next);
    const uint8_t *group = leader.sent[next];
    uint32_t len = leader.sent_bytes[next];
    static uint8_t damaged[FRAME_MAX];
    switch (kind) {
    case REPEAT: m = message_of(next - 1); group = leader.sent[next - 1]; len = m.bytes; break;
    case GAP: m = message_of(next + 1); group = leader.sent[next + 1]; len = m.bytes; break;
    case HEADER_CRC: m.header_crc ^= 1; break;
    case PREV_CRC: m.prev_crc ^= 1; break;
    case SESSION: m.session++; break;
    case TOKEN: m.token ^= 1; break;
    case SHORT: m.bytes -= 4096; break;
    case PLAIN: len = 0; break;
    case BODY:
        memcpy(damaged, group, len);
        /* Its first chunk; padding is nobody's. */
        damaged[GROUP_HEADER_BYTES + below(64)] ^= (uint8_t)(1u << below(8));
        group = damaged;
        break;
    default: break;
    }
    len = write_frame(&m, group, len);
    if (kind == FLIP) /* any bit of the message */
        frame[FRAME_HEAD_BYTES + below(MESSAGE_BYTES)] ^= (uint8_t)(1u << below(8));
    return len;
}

/* The last group that the leader has read of. */
static uint64_t acknowledged(void)
{
    struct appended_frame got[64];
    ssize_t bytes;
    while ((bytes = read(ends[1], got, sizeof got)) > 0) {
        CHECK((size_t)bytes % sizeof *got == 0); /* whole frames only */
        const struct appended_frame *newest = &got[(size_t)bytes / sizeof *got - 1];
        struct appended_frame expected = {.token = reactor->log->options.range_token,
                                          .epoch = EPOCH,
                                          .session = reactor->log->options.session,
                                          .gseq = last = newest->gseq};
        appended_frame_seal(&expected);
        CHECK(memcmp(newest, &expected, sizeof expected) == 0);
    }
    return last;
}

static void build_some(void)
{
    static uint64_t seq;
    for (uint32_t runs = 1 + below(4); runs > 0; runs--)
        put(&leader, "topic", below(8), below(6) ? 1 + below(3000) : 1 + below(200000), 0, ++seq);
    log_pump(leader.log, NOW);
    settle(&leader);
    log_replicated(leader.log, leader.log->stable_gseq);
}

static void step(void)
{
    const struct log *log = reactor->log;
    while (leader.log->next_gseq <= log->next_gseq + 1)
        build_some();
    const uint64_t next = log->next_gseq;
    const enum kind kind = next > 1 && below(3) == 0 ? below(KINDS) : USUAL;
    const bool armed = below(5) > 0;
    armed ? arm() : intake_disarm(reactor);
    const uint64_t groups = reactor->intake.groups;
    const uint32_t len = make(kind, next);
    feed(len);
    const uint32_t handed = hear(len);
    CHECK(handed == (reactor->intake.groups == groups));
    if (kind != USUAL && kind != HEADER_CRC && kind != PREV_CRC && kind != SESSION &&
        kind != TOKEN && kind != SHORT && kind != FLIP)
        CHECK(log->next_gseq == next && handed == 1);
    if (kind != USUAL)
        CHECK(reactor->intake.groups == groups);
    drop_upcalls();
    if (below(2) && write_count > 0) {
        const bool native = reactor->intake.armed;
        acknowledged();
        reactor_run(reactor, 0);
        bool told = false;
        for (uint32_t i = 0; i < reactor->upcall_count; i++)
            told = told || reactor->upcalls[i].kind == UPCALL_LANDED;
        CHECK(native != told && (!native || acknowledged() == log->stable_gseq));
    }
    CHECK(acknowledged() <= log->stable_gseq);
    drop_upcalls();
}

static void test_frames(void)
{
    start();
    uint64_t closed_at = 0;
    for (int i = 0; i < STEPS && leader.log->next_gseq < GROUPS_MAX - 10 && !closed_at; i++) {
        step();
        if (leader.log->current == DISKS - 1)
            closed_at = reactor->log->next_gseq; /* the disks are full */
    }
    while (write_count > 0)
        reactor_run(reactor, 0);
    drop_upcalls();
    CHECK(reactor->intake.groups > 20 && reactor->intake.sent_bytes > 0);
    for (uint64_t gseq = 1; gseq < reactor->log->next_gseq; gseq++) {
        CHECK(hand(&twin, &leader, gseq) == FOREIGN_TAKEN);
        settle(&twin);
    }
    for (uint32_t i = 0; i < DISKS; i++)
        CHECK(memcmp(twin.disk[i], disk[i], DISK_BYTES) == 0);
    CHECK(reactor->log->prev_crc == twin.log->prev_crc);
    stop();
}

static void test_lengths(void)
{
    start();
    build_some();
    const uint32_t good[2] = {FRAME_MESSAGE_BYTES_MAX, FRAME_MAX}, none[2] = {0, 0};
    const uint32_t long_message[2] = {FRAME_MESSAGE_BYTES_MAX + 1, 0};
    const uint32_t long_group[2] = {10, FRAME_MAX + 1};
    conn_input(conn, (const uint8_t *)good, 8);
    CHECK(!conn->closed && replica_of(conn)->frames->group == NULL);
    begin_frame();
    const uint32_t *bad[] = {none, long_message, long_group};
    for (int i = 0; i < 3; i++)
        for (int whole = 0; whole < 2; whole++) {
            conn->closed = false;
            begin_frame();
            arm();
            for (int at = 0; at < 8 && !conn->closed; at += whole ? 8 : 1)
                conn_input(conn, (const uint8_t *)bad[i] + at, whole ? 8 : 1);
            CHECK(conn->closed && !reactor->intake.armed);
        }
    conn->closed = false;
    stop();
}

/* The leader does not read: Python, which has a queue, goes on. */
static void test_a_way_back_that_is_full(void)
{
    start();
    build_some();
    arm();
    feed(make(USUAL, 1));
    CHECK(reactor->log->next_gseq == 2 || hear(0) == 0);
    uint8_t bytes[4096] = {0};
    while (write(ends[0], bytes, sizeof bytes) > 0 || write(ends[0], bytes, 1) > 0)
        ;
    if (reactor->log->next_gseq == 2) {
        arm();
        while (write_count > 0)
            reactor_run(reactor, 0);
        CHECK(!reactor->intake.armed && reactor->upcall_count == 1);
        CHECK(reactor->upcalls[0].kind == UPCALL_LANDED && reactor->upcalls[0].id == 1);
        CHECK(reactor->upcalls[0].header_crc == reactor->log->prev_crc);
    }
    stop();
}

int main(void)
{
    seed = 1;
    test_messages();
    test_messages_that_hold_what_they_can_not();
    test_lengths();
    test_a_way_back_that_is_full();
    for (uint64_t i = 1; i <= 6; i++) {
        seed = i;
        test_frames();
    }
    return 0;
}
