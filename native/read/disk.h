/* Many small reads of a file at once. */
#ifndef BARCO_DISK_H
#define BARCO_DISK_H

#include <stddef.h>
#include <stdint.h>

struct disk_span {
    uint64_t offset; /* in the file */
    uint8_t *memory;
    size_t length;
    int64_t result; /* bytes read, fewer only at the file's end, or -errno */
};

/* Reads all of them; offset, memory and length are aligned if the file is open for direct I/O.
 * Blocks, so it is for threads. Submitted together (io_submit), they reach the device as one: on a
 * virtual disk telling the hypervisor of a request costs more than all else about it. Where that is
 * refused they are read one after the other. */
void disk_read(int fd, struct disk_span *spans, size_t count);

/* Before the first read: 0, or -1 without another thread-local value. */
int disk_init(void);

#endif
