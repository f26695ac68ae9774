/* source: bytes of an answer that lie where somebody may need to write later, and can be moved out
 * of the way. Whoever sends them asks each time where they are (log/lent.h). */
#ifndef BARCO_SOURCE_H
#define BARCO_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct msghdr;

struct source {
    uint8_t *copy; /* where they were moved to, or NULL: then a message says where they are */
    bool lost;     /* there was no memory to move them to */
    uint32_t len;
    size_t message_bytes; /* what a message needs; it begins with its struct msghdr */
    /* What is left behind the bytes that were sent, at most so many bytes. */
    void (*fill)(const struct source *source, uint32_t sent, uint32_t most,
                 struct msghdr *message);
};

#endif
