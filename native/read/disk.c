#define _GNU_SOURCE
#include "read/disk.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/urgent.h"

enum { ALIGNED = 512, BATCH = 64 };

static pthread_key_t queue_key; /* aio_context_t of this thread; 0: not made yet, or refused. */

static void queue_end(void *context)
{
    syscall(SYS_io_destroy, (aio_context_t)(uintptr_t)context);
}

int disk_init(void)
{
    return pthread_key_create(&queue_key, queue_end) == 0 ? 0 : -1;
}

static aio_context_t thread_queue(void)
{
    aio_context_t context = (aio_context_t)(uintptr_t)pthread_getspecific(queue_key);
    if (context == 0 && syscall(SYS_io_setup, BATCH, &context) == 0 &&
        pthread_setspecific(queue_key, (void *)(uintptr_t)context) != 0) {
        queue_end((void *)(uintptr_t)context);
        context = 0;
    }
    return context;
}

/* While clients wait for appends a portion of one reader is on the device at a time. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static ssize_t read_some(int fd, uint8_t *memory, size_t length, off_t offset)
{
    if (!urgent())
        return pread(fd, memory, length, offset);
    pthread_mutex_lock(&turn);
    ssize_t got = pread(fd, memory, length < URGENT_PORTION_BYTES ? length : URGENT_PORTION_BYTES,
                        offset);
    pthread_mutex_unlock(&turn);
    return got;
}

/* What is left of a span: the bytes read in all, fewer only at the file's end, or -errno. */
static int64_t read_rest(int fd, const struct disk_span *span, int64_t done)
{
    while ((size_t)done < span->length && done % ALIGNED == 0) {
        ssize_t got = read_some(fd, span->memory + done, span->length - (size_t)done,
                                (off_t)(span->offset + (uint64_t)done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : done;
        done += got;
    }
    return done; /* Direct I/O ends within a sector at the file's end alone. */
}

/* Waits until all that the kernel has taken are done: it writes into the memory until then. */
static void await_all(aio_context_t queue, struct disk_span *spans, long count)
{
    struct io_event events[BATCH];
    while (count > 0) {
        long got = syscall(SYS_io_getevents, queue, count, count, events, NULL);
        for (long i = 0; i < got; i++)
            spans[events[i].data].result = (int64_t)events[i].res;
        count -= got > 0 ? got : 0;
    }
}

/* Reads up to BATCH spans, at once unless clients wait for appends; those that the kernel does not
 * take stay at 0 bytes. */
static void read_batch(int fd, struct disk_span *spans, long count)
{
    struct iocb blocks[BATCH], *list[BATCH];
    aio_context_t queue = count > 1 && !urgent() ? thread_queue() : 0;
    long taken = 0;
    for (long i = 0; i < count; i++) {
        spans[i].result = 0;
        blocks[i] = (struct iocb){.aio_data = (uint64_t)i,
                                  .aio_lio_opcode = IOCB_CMD_PREAD,
                                  .aio_fildes = (uint32_t)fd,
                                  .aio_buf = (uint64_t)(uintptr_t)spans[i].memory,
                                  .aio_nbytes = (uint64_t)spans[i].length,
                                  .aio_offset = (int64_t)spans[i].offset};
        list[i] = &blocks[i];
    }
    while (queue != 0 && taken < count) {
        long got = syscall(SYS_io_submit, queue, count - taken, list + taken);
        if (got <= 0)
            break;
        taken += got;
    }
    if (taken > 0)
        await_all(queue, spans, taken);
    for (long i = 0; i < count; i++)
        if (spans[i].result >= 0)
            spans[i].result = read_rest(fd, &spans[i], spans[i].result);
}

void disk_read(int fd, struct disk_span *spans, size_t count)
{
    for (size_t at = 0; at < count; at += BATCH)
        read_batch(fd, spans + at, (long)(count - at < BATCH ? count - at : BATCH));
}
