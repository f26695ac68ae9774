/* tls_state: a connection by TLS, for tls.c, which shakes hands and says, and tls_hear.c. */
#ifndef BARCO_TLS_STATE_H
#define BARCO_TLS_STATE_H

#include <openssl/ssl.h>

#include "loop/loop.h"
#include "loop/tls_bio.h"
#include "loop/tls_figures.h"
#include "loop/tls_kernel.h"

#define PLAIN_BYTES 65536u

/* Who waits, oldest first. */
struct list {
    struct tls *first, **end;
    uint32_t count;
};

struct tls {
    SSL *ssl; /* NULL: nothing was heard, or it waits in line; or records are ours */
    struct conn *conn;
    struct tls_bio bio;    /* reads the engine's buffer; bio.next is sent after `out` */
    struct piece out;      /* being sent */
    struct piece heard;    /* while it waits in line; a record that has come in part */
    uint32_t said;         /* bytes of the protocol that `out` has */
    uint32_t records_left; /* until other keys */
    uint32_t no_data;      /* in so many records, one behind the other */
    uint8_t update_len;    /* of a change of keys that has come in part */
    uint8_t name_len;      /* 0: the other end has shown no certificate that names it */
    char name[CONN_NAME_BYTES_MAX];
    struct tls_kernel *kernel; /* seals what is said; NULL: we do */
    bool kernel_tried;         /* or the other end has asked for other keys, and may again */
    bool established, flushing, held, ended, ending, shut, failed;
    struct list *list;
    struct tls *next_listed, **prev_listed;
    int64_t since_ms; /* in that list */
};

struct tls_wires {
    SSL_CTX *context; /* NULL: clients speak without TLS */
    struct tls_figures figures;
    struct tls_figures between; /* of connections of brokers */
    struct list line, under_way;
    uint32_t per_s;
    int64_t handshake_ms;
    bool kernel; /* of who comes from now on, and says much */
    int64_t allowed; /* millionths of handshakes that may begin */
    int64_t counted_us, turn_us, spent_us;
    uint8_t plain[PLAIN_BYTES]; /* what was heard */
    uint8_t together[SEALED_AT_ONCE]; /* what is to be said */
};

static inline struct tls *tls_of(const struct conn *conn) { return conn->wire; }

static inline struct tls_wires *wires_of(const struct conn *conn) { return conn->loop->tls; }

static inline struct tls_figures *figures_of(const struct conn *conn)
{
    return tls_of(conn)->bio.between ? &wires_of(conn)->between : &wires_of(conn)->figures;
}

/* Behind a handshake of 1.3. */
static inline bool tls_has_records(const struct tls *tls) { return tls->bio.heard.cipher != NULL; }

#endif
