/* tls_context: what all connections of a certificate have in common, and when it ends. */
#ifndef BARCO_TLS_CONTEXT_H
#define BARCO_TLS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_TICKET_KEYS_BYTES 80
#define TLS_WHY_BYTES 160

struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

/* Texts of files in PEM; client_ca may be empty, then clients show no certificate. */
struct tls_options {
    const char *certificate, *key, *client_ca;
    size_t certificate_len, key_len, client_ca_len;
    const uint8_t *ticket_keys; /* TLS_TICKET_KEYS_BYTES of them, or NULL: random ones */
    uint32_t handshakes_per_s;
    bool kernel; /* seals large answers, where it can */
    int64_t handshake_ms; /* from the first byte, and so long in line before it */
};

/* NULL, and `why` says what is wrong with the options. */
struct ssl_ctx_st *tls_context_new(const struct tls_options *options, char why[TLS_WHY_BYTES]);
/* For both ends of a connection between brokers: TLS 1.3, each shows a certificate of client_ca. */
struct ssl_ctx_st *tls_context_between(const struct tls_options *options, char why[TLS_WHY_BYTES]);
/* When the chain begins and ends to be valid, seconds since 1970. False: as above. */
bool tls_dates(const struct tls_options *options, int64_t *from_s, int64_t *until_s,
               char why[TLS_WHY_BYTES]);

#endif
