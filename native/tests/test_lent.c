/* Chunks that answers are sent from the arena: whatever the log writes over them, and whenever the
 * socket takes them, what arrives are the bytes that were lent. */
#include "log/lent.h"
#include "log/log.h"

#include "codec_testing.h"

#define ARENA_BYTES (8u << 20)
#define DISK_BYTES (64u << 20)
#define NOW 1700000000000000

struct lab {
    struct shard *shard;
    struct log *log;
    struct stream *stream;
    struct append *submitted[APPENDS_IN_FLIGHT];
    uint32_t submitted_count, flushes;
    bool busy; /* the kernel takes no submissions */
    uint64_t seed;
};

static void on_submit(void *owner, struct append *append)
{
    struct lab *lab = owner;
    lab->submitted[lab->submitted_count++] = append;
}

static void on_stable(void *owner, struct run *run) {}
static void on_want(void *owner) {}
static void on_closed(void *owner, uint32_t index) {}

static bool on_flush(void *owner)
{
    struct lab *lab = owner;
    lab->flushes++;
    return !lab->busy;
}

static void lab_open(struct lab *lab)
{
    struct log_options options = {.arena_bytes = ARENA_BYTES, .epoch = 7, .session = 9,
                                  .acceleration = 1};
    memset(lab, 0, sizeof *lab);
    lab->shard = shard_new(0, 8);
    lab->log = log_new(&options, lab->shard);
    CHECK(lab->shard && lab->log);
    lab->log->owner = lab;
    lab->log->submit = on_submit;
    lab->log->stable = on_stable;
    lab->log->want_segment = on_want;
    lab->log->segment_closed = on_closed;
    lab->log->flush = on_flush;
    lab->stream = shard_stream(lab->shard, shard_topic_make(lab->shard, "t", 1), 1);
    log_add_segment(lab->log, 0, 0, DISK_BYTES);
    log_open_generation(lab->log, (const uint8_t *)"", 0);
    log_pump(lab->log, NOW);
}

static void lab_close(struct lab *lab)
{
    log_free(lab->log);
    shard_free(lab->shard);
}

/* One event of bytes that do not compress, stable. False: it could not be built. */
static bool put(struct lab *lab, size_t len)
{
    struct run *run = run_new(lab->stream, len);
    CHECK(run != NULL);
    for (size_t i = 0; i < len; i++)
        run->tail[i] = (uint8_t)random_next(&lab->seed);
    run->count = 1;
    run->values = run->tail;
    run->value_len = run->bytes = (uint32_t)len;
    log_enqueue(lab->log, run);
    do {
        while (lab->submitted_count > 0) {
            struct append *append = lab->submitted[--lab->submitted_count];
            log_written(lab->log, append, append->bytes);
        }
        log_pump(lab->log, NOW);
    } while (lab->submitted_count > 0);
    return lab->log->queue == NULL;
}

/* The newest chunks of the stream, and what they are now. */
static struct lent *lend(struct lab *lab, uint32_t count, uint8_t **bytes)
{
    const struct index_entry *end = lab->stream->entries + lab->stream->entry_count;
    struct lent *lent = lent_new(lab->log, end - count, end);
    CHECK(lent != NULL);
    *bytes = malloc(lent->source.len);
    uint8_t *out = *bytes;
    for (const struct index_entry *entry = end - count; entry < end; entry++) {
        memcpy(out, log_memory(lab->log, entry->log_pos), entry->stored_bytes);
        out += entry->stored_bytes;
    }
    CHECK(out == *bytes + lent->source.len);
    return lent;
}

/* Sends in pieces of so many bytes, as a socket would take them; something happens between two. */
static void check_sent(struct lab *lab, const struct lent *lent, const uint8_t *bytes, size_t step,
                       size_t between)
{
    uint8_t *got = malloc(lent->source.len);
    struct msghdr *message = malloc(lent->source.message_bytes);
    uint32_t sent = 0;
    while (sent < lent->source.len) {
        const uint32_t before = sent;
        if (lent->source.copy != NULL) {
            size_t left = lent->source.len - sent, take = left < step ? left : step;
            memcpy(got + sent, lent->source.copy + sent, take);
            sent += (uint32_t)take;
        } else {
            const uint32_t most = (uint32_t)step / 2 + 1;
            lent->source.fill(&lent->source, sent, most, message);
            size_t some = 0;
            for (size_t i = 0; i < message->msg_iovlen; i++)
                some += message->msg_iov[i].iov_len;
            CHECK(some == (lent->source.len - sent < most ? lent->source.len - sent : most));
            lent->source.fill(&lent->source, sent, UINT32_MAX, message);
            size_t room = step, total = 0;
            for (size_t i = 0; i < message->msg_iovlen; i++)
                total += message->msg_iov[i].iov_len;
            CHECK(total == lent->source.len - sent);
            for (size_t i = 0; i < message->msg_iovlen && room > 0; i++) {
                size_t take = message->msg_iov[i].iov_len;
                take = take < room ? take : room;
                memcpy(got + sent, message->msg_iov[i].iov_base, take);
                sent += (uint32_t)take;
                room -= take;
            }
        }
        CHECK(sent > before);
        if (between > 0)
            CHECK(put(lab, between));
    }
    CHECK(memcmp(got, bytes, lent->source.len) == 0);
    free(message);
    free(got);
}

static void test_what_is_sent_at_once_is_never_copied(void)
{
    struct lab lab;
    lab_open(&lab);
    for (int i = 0; i < 10; i++)
        CHECK(put(&lab, 100000 + (size_t)i));
    uint8_t *bytes;
    struct lent *lent = lend(&lab, 8, &bytes);
    check_sent(&lab, lent, bytes, 70001, 0);
    CHECK(lent->source.copy == NULL && lab.flushes == 0);
    lent_free(lent);
    CHECK(lab.log->lent == NULL);
    free(bytes);
    lab_close(&lab);
}

static void test_the_log_writes_over_what_a_slow_client_has_not_read(void)
{
    struct lab lab;
    lab_open(&lab);
    for (int i = 0; i < 30; i++) /* across the arena's end as well */
        CHECK(put(&lab, 900000));
    uint8_t *bytes[3];
    struct lent *lent[3];
    for (int i = 0; i < 3; i++) {
        lent[i] = lend(&lab, 2, &bytes[i]);
        CHECK(put(&lab, 700000));
    }
    check_sent(&lab, lent[1], bytes[1], 100000, 900000);
    CHECK(lent[1]->source.copy != NULL && lab.flushes > 0);
    for (int i = 0; i < 20; i++)
        CHECK(put(&lab, 900000));
    CHECK(lab.log->lent == NULL);
    check_sent(&lab, lent[0], bytes[0], 333333, 0);
    check_sent(&lab, lent[2], bytes[2], 5, 0);
    for (int i = 0; i < 3; i++) {
        lent_free(lent[i]);
        free(bytes[i]);
    }
    lab_close(&lab);
}

static void test_nothing_is_written_over_what_the_kernel_has_yet_to_read(void)
{
    struct lab lab;
    lab_open(&lab);
    for (int i = 0; i < 4; i++)
        CHECK(put(&lab, 900000));
    uint8_t *bytes;
    struct lent *lent = lend(&lab, 3, &bytes);
    lab.busy = true;
    int taken = 0;
    while (taken < 20 && put(&lab, 900000))
        taken++;
    CHECK(taken < 8 && lent->source.copy == NULL);
    check_sent(&lab, lent, bytes, lent->source.len, 0);
    lab.busy = false;
    log_pump(lab.log, NOW);
    CHECK(lab.log->queue == NULL && lent->source.copy != NULL);
    check_sent(&lab, lent, bytes, 12345, 0);
    lent_free(lent);
    free(bytes);
    lab_close(&lab);
}

static void test_the_log_ends_first(void)
{
    struct lab lab;
    lab_open(&lab);
    CHECK(put(&lab, 5000));
    uint8_t *bytes;
    struct lent *lent = lend(&lab, 1, &bytes);
    lab_close(&lab);
    CHECK(lent->source.copy != NULL && memcmp(lent->source.copy, bytes, lent->source.len) == 0);
    CHECK(lent_own(lent));
    lent_free(lent);
    free(bytes);
}

static void test_old_chunks_are_not_lent(void)
{
    struct lab lab;
    lab_open(&lab);
    for (int i = 0; i < 8; i++)
        CHECK(put(&lab, 900000));
    const struct index_entry *first = lab.stream->entries;
    CHECK(first->log_pos >= log_memory_low(lab.log));
    CHECK(lent_new(lab.log, first, first + 1) == NULL);
    lab_close(&lab);
}

int main(void)
{
    test_what_is_sent_at_once_is_never_copied();
    test_the_log_writes_over_what_a_slow_client_has_not_read();
    test_nothing_is_written_over_what_the_kernel_has_yet_to_read();
    test_the_log_ends_first();
    test_old_chunks_are_not_lent();
    puts("lent: ok");
    return 0;
}
