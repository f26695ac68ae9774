/* Preloaded into a broker: its wall clock is wrong by as many microseconds as the file says that
 * $BARCO_FAULT_CLOCK names (8 bytes, little-endian), which may be written to while it runs. By the
 * next 8 bytes its monotonic clock is ahead: that much time has gone by.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int clock_call(clockid_t, struct timespec *);

static clock_call *real;
static const volatile int64_t *offset_us;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("BARCO_FAULT_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real = (clock_call *)dlsym(RTLD_NEXT, "clock_gettime");
    if (fd < 0)
        return;
    void *memory = mmap(NULL, 2 * sizeof *offset_us, PROT_READ, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED)
        offset_us = memory;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (real == NULL)
        real = (clock_call *)dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (status != 0 || offset_us == NULL || (!wall && clock != CLOCK_MONOTONIC))
        return status;
    int64_t us = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + offset_us[wall ? 0 : 1];
    now->tv_sec = us / 1000000;
    now->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at != NULL)
        *at = exact.tv_sec;
    return exact.tv_sec;
}
