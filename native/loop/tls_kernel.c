#define _GNU_SOURCE
#include "loop/tls_kernel.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* linux/tls.h, of which older systems know less than their kernels. */
#define ULP 31 /* of TCP */
#define SOL_OF_TLS 282
#define SENDING 1
#define RECORD_TYPE 1
#define VERSION_BYTES 2u /* and so many for the cipher */
#define NUMBER_BYTES 8u

/* Of each cipher: its name there, and how much of the first bytes of our iv comes behind the key,
 * as its salt. */
static const struct given {
    uint16_t name;
    uint8_t key_len, salt_len;
} ciphers[] = {
    [RECORD_AES_128] = {51, 16, 4},
    [RECORD_AES_256] = {52, 32, 4},
    [RECORD_CHACHA] = {54, 32, 0},
};

struct written {
    uint8_t bytes[2 * VERSION_BYTES + RECORD_KEY_BYTES_MAX + RECORD_IV_BYTES + NUMBER_BYTES];
    socklen_t len;
};

static void write_bytes(struct written *out, const void *bytes, size_t len)
{
    assert(out->len + len <= sizeof out->bytes);
    memcpy(out->bytes + out->len, bytes, len);
    out->len += (socklen_t)len;
}

static void write_key(struct written *out, const struct record_key *key)
{
    const struct given *cipher = &ciphers[key->cipher];
    const uint16_t version = 0x0304;
    uint8_t number[NUMBER_BYTES];
    assert(key->len == cipher->key_len);
    for (unsigned i = 0; i < NUMBER_BYTES; i++)
        number[i] = (uint8_t)(key->number >> 8 * (NUMBER_BYTES - 1 - i));
    out->len = 0;
    write_bytes(out, &version, sizeof version);
    write_bytes(out, &cipher->name, sizeof cipher->name);
    write_bytes(out, key->iv + cipher->salt_len, RECORD_IV_BYTES - cipher->salt_len);
    write_bytes(out, key->key, key->len);
    write_bytes(out, key->iv, cipher->salt_len);
    write_bytes(out, number, sizeof number);
}

static bool give(int fd, const struct record_key *key)
{
    static const char name[] = "tls";
    struct written out;
    if (setsockopt(fd, IPPROTO_TCP, ULP, name, sizeof name) != 0)
        return false;
    write_key(&out, key);
    const bool given = setsockopt(fd, SOL_OF_TLS, SENDING, out.bytes, out.len) == 0;
    OPENSSL_cleanse(&out, sizeof out);
    return given;
}

/* Both ends of a connection to ourselves. */
static bool connect_both(int ends[2])
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof where;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[1] = -1;
    if (listener >= 0 && ends[0] >= 0 &&
        bind(listener, (struct sockaddr *)&where, sizeof where) == 0 && listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&where, &len) == 0 &&
        connect(ends[0], (struct sockaddr *)&where, sizeof where) == 0)
        ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (listener >= 0)
        close(listener);
    return ends[1] >= 0;
}

bool tls_kernel_is_there(void)
{
    struct record_key key = {.cipher = RECORD_AES_128, .len = ciphers[RECORD_AES_128].key_len};
    int ends[2];
    const bool there = connect_both(ends) && give(ends[0], &key);
    const int why = errno;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    errno = why;
    return there;
}

/* ---- what TCP has of it ---- */

/* Bytes since the connection stands, those first that the other end has: what it acknowledges in
 * between is missing in the sum, and never counted twice. False: nobody knows. */
static bool in_tcp(int fd, uint64_t *bytes)
{
    struct {
        struct tcp_info info;
        uint8_t more[256]; /* newer kernels say more than the header knows */
    } told;
    /* linux/tcp.h, since 4.1: behind what the C library's header has. */
    const size_t acknowledged_at = 120;
    socklen_t len = sizeof told;
    int queued;
    memset(&told, 0, sizeof told);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &told, &len) != 0 ||
        len < acknowledged_at + sizeof *bytes || ioctl(fd, SIOCOUTQ, &queued) != 0)
        return false;
    memcpy(bytes, (const uint8_t *)&told + acknowledged_at, sizeof *bytes);
    *bytes += (uint64_t)queued;
    return true;
}

/* Of the record that it will seal next. */
static bool next_number(int fd, uint64_t *number)
{
    struct written told;
    uint8_t version[2 * VERSION_BYTES];
    socklen_t len = sizeof version;
    if (getsockopt(fd, SOL_OF_TLS, SENDING, version, &len) != 0) /* which says what cipher it is */
        return false;
    uint16_t name;
    memcpy(&name, version + VERSION_BYTES, sizeof name);
    told.len = 0;
    for (unsigned i = 0; i < sizeof ciphers / sizeof *ciphers; i++)
        if (ciphers[i].name == name)
            told.len = 2 * VERSION_BYTES + RECORD_IV_BYTES + ciphers[i].key_len + NUMBER_BYTES;
    const bool good = told.len > 0 &&
                      getsockopt(fd, SOL_OF_TLS, SENDING, told.bytes, &told.len) == 0;
    for (unsigned i = 0; good && i < NUMBER_BYTES; i++)
        *number = *number << 8 | told.bytes[told.len - NUMBER_BYTES + i];
    OPENSSL_cleanse(&told, sizeof told); /* the key is in it */
    return good;
}

bool tls_kernel_owes(struct tls_kernel *kernel, int fd, int64_t now_ms)
{
    uint64_t number = 0, wire;
    if (kernel->owes_ms != 0 && now_ms - kernel->owes_ms > KERNEL_OWES_MS)
        return false;
    if (!next_number(fd, &number) || !in_tcp(fd, &wire))
        return false;
    const uint64_t records = number - kernel->number;
    if (wire - kernel->wire >= kernel->said + records * RECORD_ADDED_BYTES)
        return false;
    if (kernel->owes_ms == 0)
        kernel->owes_ms = now_ms;
    return true;
}

/* ---- going over ---- */

struct tls_kernel *tls_kernel_new(int fd, const struct record_keys *keys, uint32_t records)
{
    struct tls_kernel *kernel = calloc(1, sizeof *kernel);
    struct record_key key;
    bool good = kernel != NULL && in_tcp(fd, &kernel->wire) && record_show(keys, &key);
    good = good && give(fd, &key);
    OPENSSL_cleanse(&key, sizeof key);
    if (!good) {
        free(kernel);
        return NULL;
    }
    kernel->number = keys->number;
    kernel->records = records;
    return kernel;
}

void tls_kernel_free(struct tls_kernel *kernel) { free(kernel); }

const struct msghdr *tls_kernel_alert(struct tls_kernel *kernel, uint8_t level, uint8_t what)
{
    struct cmsghdr *head = &kernel->control.head;
    kernel->alert[0] = level;
    kernel->alert[1] = what;
    kernel->piece = (struct iovec){kernel->alert, sizeof kernel->alert};
    kernel->message = (struct msghdr){.msg_iov = &kernel->piece, .msg_iovlen = 1,
                                      .msg_control = &kernel->control,
                                      .msg_controllen = sizeof kernel->control.bytes};
    *head = (struct cmsghdr){.cmsg_level = SOL_OF_TLS, .cmsg_type = RECORD_TYPE,
                             .cmsg_len = CMSG_LEN(1)};
    *CMSG_DATA(head) = RECORD_ALERT;
    assert(CMSG_FIRSTHDR(&kernel->message) == head);
    return &kernel->message;
}

void tls_kernel_said(struct tls_kernel *kernel, size_t len)
{
    kernel->said += len;
    /* Each call ends a record, and one that lies in many pieces may be cut short. */
    const uint64_t records = kernel->records + len / (RECORD_BYTES / 2) + 1;
    kernel->records = records < UINT32_MAX ? (uint32_t)records : UINT32_MAX;
}
