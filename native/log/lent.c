#include "log/lent.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Whoever lets go of one may be another thread than the log's (Python's collector runs in any). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void unlink_lent(struct lent *lent)
{
    assert(*lent->prev == lent);
    *lent->prev = lent->next;
    if (lent->next != NULL)
        lent->next->prev = lent->prev;
    lent->prev = NULL;
}

/* What sendmsg needs, for one attempt to send. */
struct message {
    struct msghdr header;
    struct iovec pieces[];
};

static void fill(const struct source *source, uint32_t sent, uint32_t most, struct msghdr *header)
{
    const struct lent *lent = (const struct lent *)source;
    struct message *message = (struct message *)header;
    message->header = (struct msghdr){.msg_iov = message->pieces};
    for (uint32_t i = 0; i < lent->count && most > 0; i++) {
        const struct iovec *piece = &lent->pieces[i];
        const size_t skip = sent < piece->iov_len ? sent : piece->iov_len;
        sent -= (uint32_t)skip;
        const size_t left = piece->iov_len - skip, len = left < most ? left : most;
        most -= (uint32_t)len;
        if (len > 0)
            message->pieces[message->header.msg_iovlen++] =
                (struct iovec){(uint8_t *)piece->iov_base + skip, len};
    }
}

struct lent *lent_new(struct log *log, const struct index_entry *first,
                      const struct index_entry *end)
{
    assert(first <= end);
    const size_t most = (size_t)(end - first);
    if (most > LENT_PIECES_MAX ||
        first->log_pos + log->options.arena_bytes / 4 * 3 < log->dirty_end)
        return NULL;
    struct lent *lent = calloc(1, sizeof *lent + most * sizeof lent->pieces[0]);
    if (lent == NULL)
        return NULL;
    lent->log = log;
    lent->low = first->log_pos;
    for (const struct index_entry *entry = first; entry < end; entry++) {
        uint8_t *bytes = (uint8_t *)log_memory(log, entry->log_pos);
        struct iovec *last = lent->count ? &lent->pieces[lent->count - 1] : NULL;
        if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == bytes)
            last->iov_len += entry->stored_bytes;
        else
            lent->pieces[lent->count++] = (struct iovec){bytes, entry->stored_bytes};
        lent->source.len += entry->stored_bytes;
    }
    pthread_mutex_lock(&lock);
    lent->next = log->lent;
    lent->prev = &log->lent;
    if (lent->next != NULL)
        lent->next->prev = &lent->next;
    log->lent = lent;
    pthread_mutex_unlock(&lock);
    assert(lent->count <= most);
    lent->source.fill = fill;
    lent->source.message_bytes = sizeof(struct message) + lent->count * sizeof(struct iovec);
    return lent;
}

/* With the lock held. */
static void move_out(struct lent *lent)
{
    lent->source.copy = malloc(lent->source.len);
    lent->source.lost = lent->source.copy == NULL;
    uint8_t *out = lent->source.copy;
    for (uint32_t i = 0; i < lent->count && out != NULL; i++) {
        memcpy(out, lent->pieces[i].iov_base, lent->pieces[i].iov_len);
        out += lent->pieces[i].iov_len;
    }
    assert(out == NULL || out == lent->source.copy + lent->source.len);
    unlink_lent(lent);
}

bool lent_own(struct lent *lent)
{
    pthread_mutex_lock(&lock);
    if (lent->prev != NULL)
        move_out(lent);
    pthread_mutex_unlock(&lock);
    return !lent->source.lost;
}

void lent_free(struct lent *lent)
{
    pthread_mutex_lock(&lock);
    if (lent->prev != NULL)
        unlink_lent(lent);
    pthread_mutex_unlock(&lock);
    free(lent->source.copy);
    free(lent);
}

bool lent_reclaim(struct log *log, uint64_t low)
{
    bool flushed = log->flush == NULL, clear = true;
    pthread_mutex_lock(&lock);
    for (struct lent *lent = log->lent, *next; lent != NULL; lent = next) {
        next = lent->next;
        if (lent->low >= low)
            continue;
        clear = flushed = flushed || log->flush(log->owner);
        if (!clear)
            break;
        move_out(lent);
    }
    pthread_mutex_unlock(&lock);
    return clear;
}
