/* Preloaded into a broker on the epoll engine: appends (pwritev2 with RWF_DSYNC) that fail.
 *
 * $BARCO_FAULT_WRITES names a file. Its first byte says what happens to appends: of 's' every other
 * one writes a part only, 'e' fails with EIO, 'n' with ENOSPC, 'i' with EINTR; 'E' and 'N' do so
 * once a process. Anything else, or no file: nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_uint calls, done;

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

ssize_t pwritev2(int fd, const struct iovec *vectors, int count, off_t offset, int flags)
{
    ssize_t (*real)(int, const struct iovec *, int, off_t, int);
    *(void **)&real = dlsym(RTLD_NEXT, "pwritev2");
    char what = flags & RWF_DSYNC ? fault() : 0;
    if ((what == 'E' || what == 'N') && atomic_fetch_add(&done, 1) > 0)
        what = 0;
    switch (what) {
    case 'e':
    case 'E': errno = EIO; return -1;
    case 'n':
    case 'N': errno = ENOSPC; return -1;
    case 'i':
        if (atomic_fetch_add(&calls, 1) % 2 == 0) {
            errno = EINTR;
            return -1;
        }
        break;
    case 's':
        if (vectors->iov_len > 4096 && atomic_fetch_add(&calls, 1) % 2 == 0) {
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
