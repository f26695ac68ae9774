#include "base/urgent.h"

#include <stdatomic.h>
#include <time.h>

static _Atomic int64_t until_us;

void urgent_note(int64_t now_us)
{
    atomic_store_explicit(&until_us, now_us + URGENT_US, memory_order_relaxed);
}

bool urgent_at(int64_t now_us)
{
    return now_us < atomic_load_explicit(&until_us, memory_order_relaxed);
}

bool urgent(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return urgent_at(now.tv_sec * 1000000LL + now.tv_nsec / 1000);
}
