/* seal: TLS between two brokers, on a connection that has been greeted in plain (docs/tls.md,
 * "Between brokers"). Whoever has greeted drives the handshake, a record at a time, and looks at
 * who it is; then a connection of the loop goes on with the session (tls.h), or it stays here, with
 * who writes to the descriptor by himself. */
#ifndef BARCO_SEAL_H
#define BARCO_SEAL_H

#include <sys/types.h>

#include "loop/tls_bio.h"
#include "loop/tls_context.h"

#define SEAL_NAME_BYTES_MAX 96u
#define SEAL_IDENTITY_BYTES_MAX 128u
#define SEAL_SCHEME "barco:"

struct msghdr;
struct ssl_ctx_st;

struct seal {
    struct ssl_st *ssl; /* NULL: a connection of the loop has it */
    struct tls_bio bio;
    uint32_t holders;
    uint32_t records_left;
    bool established, failed;
    uint8_t name_len, name[SEAL_NAME_BYTES_MAX];
};

/* What a broker shows, and of whom it believes others (options->client_ca); NULL: why not. */
struct ssl_ctx_st *seal_context(const struct tls_options *options, char why[TLS_WHY_BYTES]);
/* name: what both ends have to give for this connection, 1 to SEAL_NAME_BYTES_MAX. NULL: there is
 * no memory. */
struct seal *seal_new(struct ssl_ctx_st *context, bool client, const uint8_t *name, size_t len);
struct seal *seal_keep(struct seal *seal); /* one holder more; NULL is kept as well */
void seal_drop(struct seal *seal);
/* One record of the other end; none to begin with. What is to be sent then is seal_unsent().
 * False, and why: it is over, but what is unsent tells the other end. */
bool seal_shake(struct seal *seal, const uint8_t *record, size_t len, char why[TLS_WHY_BYTES]);
const uint8_t *seal_unsent(const struct seal *seal, size_t *len);
void seal_sent(struct seal *seal, size_t len);
/* The only URI of ours in the certificate of the other end; its length, 0: there is none, or there
 * are several, or it is no text. */
size_t seal_identity(const struct seal *seal, char out[SEAL_IDENTITY_BYTES_MAX]);
/* Its keys, after tls_bio_take_over(), for the connection whose pieces these are. */
void seal_give(struct seal *seal, struct tls_bio *bio);

/* Writes as sendmsg() without waiting, sealed where there is a seal: how many bytes were taken, or
 * -errno. What was sealed is sent before anything else, by the next call or by seal_flush(). */
ssize_t seal_or_send(struct seal *seal, int fd, const struct msghdr *message);
/* 1: nothing of it is left; 0: wait until the socket takes more; -errno. */
int seal_flush(struct seal *seal, int fd);

#endif
