/* Certificates for tests, made on the spot: an authority, and one that it has signed. */
#ifndef BARCO_TLS_TESTING_H
#define BARCO_TLS_TESTING_H

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop/tls.h"
#include "loop/tls_context.h"

struct made {
    EVP_PKEY *key;
    X509 *certificate;
    char certificate_pem[4096], key_pem[1024];
    size_t certificate_len, key_len;
};

static inline size_t pem_of(BIO *bio, char *out, size_t capacity)
{
    const int len = BIO_read(bio, out, (int)capacity);
    BIO_free(bio);
    return len > 0 ? (size_t)len : 0;
}

static inline void extend(X509 *x, int what, const char *value)
{
    X509_EXTENSION *made = value != NULL ? X509V3_EXT_conf_nid(NULL, NULL, what, value) : NULL;
    if (made != NULL)
        X509_add_ext(x, made, -1);
    X509_EXTENSION_free(made);
}

/* issuer NULL: signed by itself. names, purposes: as OpenSSL's configuration has them, or NULL. */
static inline void make_named(struct made *made, const struct made *issuer, long days,
                              const char *names, const char *purposes)
{
    static long serial = 1;
    X509 *x = X509_new();
    made->key = EVP_EC_gen("P-256");
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial++);
    X509_gmtime_adj(X509_getm_notBefore(x), days < 0 ? 2 * 86400 * days : -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 86400 * days);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)(issuer ? "broker" : "authority"), -1, -1, 0);
    X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer->certificate)
                                   : X509_get_subject_name(x));
    X509_set_pubkey(x, made->key);
    extend(x, NID_basic_constraints, issuer == NULL ? "critical,CA:TRUE" : NULL);
    extend(x, NID_subject_alt_name, names);
    extend(x, NID_ext_key_usage, purposes);
    X509_sign(x, issuer ? issuer->key : made->key, EVP_sha256());
    made->certificate = x;
    BIO *bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, x);
    made->certificate_len = pem_of(bio, made->certificate_pem, sizeof made->certificate_pem);
    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, made->key, NULL, NULL, 0, NULL, NULL);
    made->key_len = pem_of(bio, made->key_pem, sizeof made->key_pem);
}

static inline void make_certificate(struct made *made, const struct made *issuer, long days)
{
    make_named(made, issuer, days, NULL, NULL);
}

static inline void made_free(struct made *made)
{
    EVP_PKEY_free(made->key);
    X509_free(made->certificate);
}

static inline struct tls_options options_of(const struct made *made, uint32_t per_s)
{
    return (struct tls_options){.certificate = made->certificate_pem, .key = made->key_pem,
                                .certificate_len = made->certificate_len,
                                .key_len = made->key_len, .handshakes_per_s = per_s,
                                .handshake_ms = 10000};
}

#endif
