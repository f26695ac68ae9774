/* Certificates, keys and what is spoken: the settings of OpenSSL, all of them. */
#include "loop/tls_context.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "loop/tls_bio.h"

#define TICKET_SECONDS 7200
#define CHAIN_MAX 10u /* certificates of one file */
#define CLIENT_CAS_MAX 64u

static const char ciphers_12[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
static const char ciphers_13[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

static bool refuse(char why[TLS_WHY_BYTES], const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    snprintf(why, TLS_WHY_BYTES, "%s%s%s", what, reason != NULL ? ": " : "",
             reason != NULL ? reason : "");
    ERR_clear_error();
    return false;
}

/* Nobody is asked for a passphrase. */
static int no_passphrase(char *out, int capacity, int writing, void *owner) { return -1; }

static BIO *text_of(const char *text, size_t len)
{
    return len > 0 && len < INT_MAX ? BIO_new_mem_buf(text, (int)len) : NULL;
}

/* The next certificate of a file; NULL: there is none. */
static X509 *next_certificate(BIO *text)
{
    return PEM_read_bio_X509(text, NULL, no_passphrase, NULL);
}

/* Whether what is left of a file is no certificate because it is at its end. */
static bool at_the_end(void)
{
    const unsigned long error = ERR_peek_last_error();
    const bool end =
        ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
    if (end)
        ERR_clear_error();
    return end;
}

static bool use_certificate(SSL_CTX *context, BIO *text, char *why)
{
    X509 *own = next_certificate(text);
    if (own == NULL)
        return refuse(why, "the certificate is no PEM file of one");
    const bool taken = SSL_CTX_use_certificate(context, own) == 1;
    X509_free(own);
    if (!taken)
        return refuse(why, "the certificate can not be used");
    unsigned count = 1;
    for (X509 *next; (next = next_certificate(text)) != NULL; count++)
        if (count == CHAIN_MAX || SSL_CTX_add0_chain_cert(context, next) != 1) {
            X509_free(next);
            return refuse(why, "the chain of the certificate can not be used");
        }
    return at_the_end() || refuse(why, "the chain of the certificate is damaged");
}

static bool use_key(SSL_CTX *context, BIO *text, char *why)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(text, NULL, no_passphrase, NULL);
    if (key == NULL)
        return refuse(why, "the key is no PEM file of one without a passphrase");
    const bool taken = SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    if (!taken || SSL_CTX_check_private_key(context) != 1)
        return refuse(why, "the key is not that of the certificate");
    return true;
}

/* From now on clients show a certificate that one of these has signed. */
static bool use_client_ca(SSL_CTX *context, BIO *text, char *why)
{
    unsigned count = 0;
    for (X509 *next; (next = next_certificate(text)) != NULL; count++) {
        const bool taken = count < CLIENT_CAS_MAX &&
                           X509_STORE_add_cert(SSL_CTX_get_cert_store(context), next) == 1 &&
                           SSL_CTX_add_client_CA(context, next) == 1;
        X509_free(next);
        if (!taken)
            return refuse(why, "client_ca can not be used");
    }
    if (!at_the_end() || count == 0)
        return refuse(why, "client_ca is no PEM file of certificates");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return true;
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *offered, unsigned len, void *owner)
{
    static const unsigned char ours[] = "\x08http/1.1";
    if (SSL_select_next_proto((unsigned char **)out, out_len, ours, sizeof ours - 1, offered,
                              len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    return SSL_TLSEXT_ERR_OK;
}

/* A ticket has the client's certificate in it, which was good when it was issued: one that has
 * ended since is worth a full handshake, which refuses it. Else each ticket would be had for the
 * last one, for as long as the keys stay. */
static SSL_TICKET_RETURN ticket_opened(SSL *ssl, SSL_SESSION *session, const unsigned char *name,
                                       size_t name_len, SSL_TICKET_STATUS status, void *owner)
{
    X509 *shown = session != NULL ? SSL_SESSION_get0_peer(session) : NULL;
    if (status == SSL_TICKET_EMPTY || status == SSL_TICKET_NO_DECRYPT)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    if (shown != NULL && X509_cmp_current_time(X509_get0_notAfter(shown)) <= 0)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS_RENEW ? SSL_TICKET_RETURN_USE_RENEW
                                              : SSL_TICKET_RETURN_USE;
}

/* A replayed produce would be stored twice: no early data, which is how OpenSSL begins. */
static bool set_up(SSL_CTX *context, const struct tls_options *options)
{
    static const unsigned char name[] = "barco";
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_timeout(context, TICKET_SECONDS);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    SSL_CTX_set_max_early_data(context, 0);
    return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, 0) == 1 &&
           SSL_CTX_set_cipher_list(context, ciphers_12) == 1 &&
           SSL_CTX_set_ciphersuites(context, ciphers_13) == 1 &&
           SSL_CTX_set1_groups_list(context, "X25519:P-256:P-384") == 1 &&
           SSL_CTX_set_num_tickets(context, 1) == 1 &&
           SSL_CTX_set_session_ticket_cb(context, NULL, ticket_opened, NULL) == 1 &&
           SSL_CTX_set_session_id_context(context, name, sizeof name - 1) == 1 &&
           (options->ticket_keys == NULL ||
            SSL_CTX_set_tlsext_ticket_keys(context, (void *)options->ticket_keys,
                                           TLS_TICKET_KEYS_BYTES) == 1);
}

static bool use_files(SSL_CTX *context, const struct tls_options *options, char *why)
{
    BIO *certificate = text_of(options->certificate, options->certificate_len);
    BIO *key = text_of(options->key, options->key_len);
    BIO *client_ca = text_of(options->client_ca, options->client_ca_len);
    const bool good = certificate != NULL && key != NULL
                          ? use_certificate(context, certificate, why) &&
                                use_key(context, key, why) &&
                                (client_ca == NULL || use_client_ca(context, client_ca, why))
                          : refuse(why, "a certificate and its key are needed");
    BIO_free(certificate);
    BIO_free(key);
    BIO_free(client_ca);
    return good;
}

static SSL_CTX *finished(SSL_CTX *context, bool is_set_up, const struct tls_options *options,
                         char *why)
{
    if (!is_set_up) {
        refuse(why, "OpenSSL can not be set up");
    } else if (use_files(context, options, why)) {
        tls_bio_listen(context);
        return context;
    }
    SSL_CTX_free(context);
    return NULL;
}

SSL_CTX *tls_context_new(const struct tls_options *options, char why[TLS_WHY_BYTES])
{
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    return finished(context, context != NULL && set_up(context, options), options, why);
}

/* Both ends are ours. A session is never resumed: certificates are looked at each time. */
static bool set_up_between(SSL_CTX *context)
{
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_early_data(context, 0);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(context, ciphers_13) == 1 &&
           SSL_CTX_set1_groups_list(context, "X25519:P-256:P-384") == 1 &&
           SSL_CTX_set_num_tickets(context, 0) == 1;
}

SSL_CTX *tls_context_between(const struct tls_options *options, char why[TLS_WHY_BYTES])
{
    ERR_clear_error();
    if (options->client_ca_len == 0) {
        refuse(why, "there is no certificate of an authority");
        return NULL;
    }
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    return finished(context, context != NULL && set_up_between(context), options, why);
}

/* ---- dates ---- */

static int64_t seconds_of(const ASN1_TIME *time)
{
    struct tm utc;
    return ASN1_TIME_to_tm(time, &utc) == 1 ? (int64_t)timegm(&utc) : 0;
}

static void narrow(const X509 *certificate, int64_t *from_s, int64_t *until_s)
{
    const int64_t from = seconds_of(X509_get0_notBefore(certificate));
    const int64_t until = seconds_of(X509_get0_notAfter(certificate));
    if (from > *from_s)
        *from_s = from;
    if (until < *until_s)
        *until_s = until;
}

bool tls_dates(const struct tls_options *options, int64_t *from_s, int64_t *until_s,
               char why[TLS_WHY_BYTES])
{
    STACK_OF(X509) *chain = NULL;
    SSL_CTX *context = tls_context_new(options, why);
    if (context == NULL)
        return false;
    *from_s = INT64_MIN;
    *until_s = INT64_MAX;
    narrow(SSL_CTX_get0_certificate(context), from_s, until_s);
    SSL_CTX_get0_chain_certs(context, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++)
        narrow(sk_X509_value(chain, i), from_s, until_s);
    SSL_CTX_free(context);
    return true;
}
