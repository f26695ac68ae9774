/* tls_kernel: the kernel seals what a connection says from here on (docs/tls.md, "Kernel TLS"): it
 * is given the key and the number of the next record, once, and then what is said in plain. What is
 * heard stays ours. Keys are never changed again, so that has an end. */
#ifndef BARCO_TLS_KERNEL_H
#define BARCO_TLS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "loop/record.h"

#define KERNEL_FROM_BYTES (64u << 10) /* of an answer: less does not pay for going over */
#define KERNEL_RECORDS_MAX (1u << 24) /* RFC 8446, 5.5: 24 million, beyond which nothing is safe */
#define KERNEL_OWES_MS 30000          /* for what a close would take from the kernel */

struct tls_kernel {
    uint64_t said;    /* bytes that it has taken in plain */
    uint64_t number;  /* of its first record */
    uint64_t wire;    /* bytes that TCP had before that */
    uint32_t records; /* under these keys, at most so many */
    int64_t owes_ms;  /* since when somebody waits for it to give them to TCP, or 0 */
    /* An alert: as the next thing to be sent, by the engine. */
    struct msghdr message;
    struct iovec piece;
    union {
        struct cmsghdr head;
        uint8_t bytes[CMSG_SPACE(1)];
    } control;
    uint8_t alert[2];
};

/* Whether this kernel seals records of TLS 1.3 as we do; tried on a connection to ourselves. False,
 * and errno says why. */
bool tls_kernel_is_there(void);
/* The connection's records are the kernel's from now on, `records` went before under its keys: all
 * that was sealed before has to be in the socket. NULL: it can not be, and nothing has changed. */
struct tls_kernel *tls_kernel_new(int fd, const struct record_keys *keys, uint32_t records);
void tls_kernel_free(struct tls_kernel *kernel);
/* A message that is an alert. */
const struct msghdr *tls_kernel_alert(struct tls_kernel *kernel, uint8_t level, uint8_t what);
/* What the kernel has taken. */
void tls_kernel_said(struct tls_kernel *kernel, size_t len);
/* Whether it has sealed records that TCP has no room for yet: to close or to shut the socket would
 * lose them. No longer than for KERNEL_OWES_MS. */
bool tls_kernel_owes(struct tls_kernel *kernel, int fd, int64_t now_ms);

#endif
