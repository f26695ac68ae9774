/* Preloaded into a broker on the epoll engine: appends (pwritev2 with RWF_DSYNC) that fail or lie.
 *
 * $BARCO_FAULT_WRITES names a file. Its first byte says what happens to appends: of 's' every other
 * one writes a part only, 'e' fails with EIO, 'n' with ENOSPC, 'i' with EINTR; 'E' and 'N' do so
 * once a process. 'l' is a broker without sync: appends are said to be stable and written some
 * time later, if the process lives so long. Anything else, or no file: nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define LATER_US 100000

typedef ssize_t write_call(int, const struct iovec *, int, off_t, int);

struct promise {
    struct promise *next;
    struct iovec data;
    int fd, flags;
    off_t offset;
};

static atomic_uint calls, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct promise *first, **last = &first;
static pthread_t writer;
static write_call *real;

static char fault(void)
{
    const char *path = getenv("BARCO_FAULT_WRITES");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char what = 0;
    if (fd >= 0) {
        if (read(fd, &what, 1) != 1)
            what = 0;
        close(fd);
    }
    return what;
}

static void *keep_promises(void *unused)
{
    (void)unused;
    for (;;) {
        usleep(LATER_US);
        pthread_mutex_lock(&lock);
        struct promise *list = first;
        first = NULL;
        last = &first;
        pthread_mutex_unlock(&lock);
        while (list != NULL) {
            struct promise *next = list->next;
            real(list->fd, &list->data, 1, list->offset, list->flags);
            close(list->fd);
            free(list->data.iov_base);
            free(list);
            list = next;
        }
    }
    return NULL;
}

static ssize_t lie(int fd, const struct iovec *vector, off_t offset, int flags)
{
    struct promise *promise = malloc(sizeof *promise);
    *promise = (struct promise){.fd = dup(fd), .flags = flags, .offset = offset};
    if (posix_memalign(&promise->data.iov_base, 4096, vector->iov_len) != 0)
        abort();
    memcpy(promise->data.iov_base, vector->iov_base, vector->iov_len);
    promise->data.iov_len = vector->iov_len;
    pthread_mutex_lock(&lock);
    *last = promise;
    last = &promise->next;
    if (writer == 0)
        pthread_create(&writer, NULL, keep_promises, NULL);
    pthread_mutex_unlock(&lock);
    return (ssize_t)vector->iov_len;
}

ssize_t pwritev2(int fd, const struct iovec *vectors, int count, off_t offset, int flags)
{
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pwritev2");
    char what = flags & RWF_DSYNC ? fault() : 0;
    if ((what == 'E' || what == 'N') && atomic_fetch_add(&done, 1) > 0)
        what = 0;
    const int second = what == 'i' || what == 's' ? atomic_fetch_add(&calls, 1) % 2 == 1 : 0;
    switch (what) {
    case 'e':
    case 'E': errno = EIO; return -1;
    case 'n':
    case 'N': errno = ENOSPC; return -1;
    case 'l': return lie(fd, vectors, offset, flags);
    case 'i':
        if (!second)
            break;
        errno = EINTR;
        return -1;
    case 's':
        if (second && vectors->iov_len > 4096) {
            struct iovec part = *vectors;
            part.iov_len = part.iov_len / 2 & ~(size_t)4095;
            if (part.iov_len == 0)
                part.iov_len = 4096;
            return real(fd, &part, 1, offset, flags);
        }
        break;
    default: break;
    }
    return real(fd, vectors, count, offset, flags);
}
