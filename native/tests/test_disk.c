/* Reads of a file, at once and in the portions of while clients wait for appends. */
#define _GNU_SOURCE
#include "read/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include "codec_testing.h"
#include "base/urgent.h"

#define FILE_BYTES (8 * (size_t)URGENT_PORTION_BYTES + 512)
#define FAR_AWAY_US (1LL << 60)

static uint8_t content[FILE_BYTES], memory[2 * FILE_BYTES];

static int file_of_it(void)
{
    char path[] = "/tmp/barco-test-disk-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0);
    uint64_t seed = 1;
    for (size_t i = 0; i < FILE_BYTES; i++)
        content[i] = (uint8_t)random_next(&seed);
    CHECK(write(fd, content, FILE_BYTES) == (ssize_t)FILE_BYTES);
    return fd;
}

/* System calls of this process that read. */
static long reads_so_far(void)
{
    char text[512] = {0};
    int fd = open("/proc/self/io", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    const char *at = strstr(text, "syscr: ");
    CHECK(at != NULL);
    return strtol(at + 7, NULL, 10);
}

/* The second goes beyond the file's end. Returns the calls that it took. */
static long read_two(int fd)
{
    const size_t half = FILE_BYTES / 2 / 4096 * 4096;
    struct disk_span spans[] = {{.offset = 0, .memory = memory, .length = half - 4096},
                                {.offset = half, .memory = memory + half, .length = FILE_BYTES}};
    memset(memory, 0, sizeof memory);
    const long before = reads_so_far();
    disk_read(fd, spans, 2);
    const long calls = reads_so_far() - before - 1;
    CHECK(spans[0].result == (int64_t)half - 4096);
    CHECK(spans[1].result == (int64_t)(FILE_BYTES - half));
    CHECK(memcmp(memory, content, half - 4096) == 0);
    CHECK(memcmp(memory + half, content + half, FILE_BYTES - half) == 0);
    return calls;
}

int main(void)
{
    CHECK(disk_init() == 0);
    int fd = file_of_it();
    CHECK(read_two(fd) < 8);
    urgent_note(FAR_AWAY_US);
    CHECK(read_two(fd) >= 8);
    close(fd);
    return 0;
}
