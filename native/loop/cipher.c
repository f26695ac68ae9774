#include "loop/cipher.h"

#include <assert.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/objects.h>
#include <openssl/provider.h>
#include <stdlib.h>
#include <string.h>

#define KINDS_MAX 3 /* of TLS 1.3 that are spoken */

/* A cipher as its provider has it. */
struct kind {
    int nid;
    size_t key_bytes;
    EVP_CIPHER *fetched; /* as long as it is held the functions are there */
    void *provider;
    OSSL_FUNC_cipher_newctx_fn *make;
    OSSL_FUNC_cipher_freectx_fn *end;
    OSSL_FUNC_cipher_encrypt_init_fn *seals;
    OSSL_FUNC_cipher_decrypt_init_fn *opens;
    OSSL_FUNC_cipher_update_fn *update;
    OSSL_FUNC_cipher_final_fn *final;
    OSSL_FUNC_cipher_get_ctx_params_fn *tell;
    OSSL_FUNC_cipher_set_ctx_params_fn *take;
};

struct cipher {
    const struct kind *kind;
    void *state;
    bool seals;
};

/* Found once; a process has one thread that seals. */
static struct kind kinds[KINDS_MAX];

/* ---- which functions ---- */

static void note(struct kind *kind, const OSSL_DISPATCH *each)
{
    switch (each->function_id) {
    case OSSL_FUNC_CIPHER_NEWCTX:
        kind->make = OSSL_FUNC_cipher_newctx(each);
        break;
    case OSSL_FUNC_CIPHER_FREECTX:
        kind->end = OSSL_FUNC_cipher_freectx(each);
        break;
    case OSSL_FUNC_CIPHER_ENCRYPT_INIT:
        kind->seals = OSSL_FUNC_cipher_encrypt_init(each);
        break;
    case OSSL_FUNC_CIPHER_DECRYPT_INIT:
        kind->opens = OSSL_FUNC_cipher_decrypt_init(each);
        break;
    case OSSL_FUNC_CIPHER_UPDATE:
        kind->update = OSSL_FUNC_cipher_update(each);
        break;
    case OSSL_FUNC_CIPHER_FINAL:
        kind->final = OSSL_FUNC_cipher_final(each);
        break;
    case OSSL_FUNC_CIPHER_GET_CTX_PARAMS:
        kind->tell = OSSL_FUNC_cipher_get_ctx_params(each);
        break;
    case OSSL_FUNC_CIPHER_SET_CTX_PARAMS:
        kind->take = OSSL_FUNC_cipher_set_ctx_params(each);
        break;
    default:
        break;
    }
}

/* Whether one of these names, with colons between them, is the cipher's. */
static bool is_one_of(const EVP_CIPHER *cipher, const char *names)
{
    char name[64];
    const size_t len = strcspn(names, ":");
    if (len >= sizeof name)
        return false;
    memcpy(name, names, len);
    name[len] = 0;
    return EVP_CIPHER_is_a(cipher, name);
}

static bool find(struct kind *kind, int nid)
{
    int no_cache = 0;
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, OBJ_nid2sn(nid), NULL);
    if (cipher == NULL)
        return false;
    const OSSL_PROVIDER *provider = EVP_CIPHER_get0_provider(cipher);
    const OSSL_ALGORITHM *each =
        OSSL_PROVIDER_query_operation(provider, OSSL_OP_CIPHER, &no_cache);
    while (each != NULL && each->algorithm_names != NULL &&
           !is_one_of(cipher, each->algorithm_names))
        each++;
    *kind = (struct kind){.key_bytes = (size_t)EVP_CIPHER_get_key_length(cipher),
                          .fetched = cipher,
                          .provider = OSSL_PROVIDER_get0_provider_ctx(provider)};
    if (each != NULL && each->algorithm_names != NULL)
        for (const OSSL_DISPATCH *one = each->implementation; one->function_id != 0; one++)
            note(kind, one);
    if (kind->make && kind->end && kind->seals && kind->opens && kind->update && kind->final &&
        kind->tell && kind->take && EVP_CIPHER_get_iv_length(cipher) == CIPHER_NUMBER_BYTES) {
        kind->nid = nid;
        return true;
    }
    EVP_CIPHER_free(cipher);
    return false;
}

static const struct kind *kind_of(int nid)
{
    assert(nid != 0); /* which is a place without one */
    for (unsigned i = 0; i < KINDS_MAX; i++)
        if (kinds[i].nid == nid || kinds[i].nid == 0)
            return kinds[i].nid == nid || find(&kinds[i], nid) ? &kinds[i] : NULL;
    return NULL;
}

/* ---- with a key ---- */

struct cipher *cipher_new(int nid, bool seals)
{
    const struct kind *kind = kind_of(nid);
    struct cipher *cipher = kind == NULL ? NULL : malloc(sizeof *cipher);
    if (cipher == NULL)
        return NULL;
    *cipher = (struct cipher){.kind = kind, .state = kind->make(kind->provider), .seals = seals};
    if (cipher->state != NULL)
        return cipher;
    free(cipher);
    return NULL;
}

void cipher_free(struct cipher *cipher)
{
    if (cipher == NULL)
        return;
    cipher->kind->end(cipher->state);
    free(cipher);
}

int cipher_nid(const struct cipher *cipher) { return cipher->kind->nid; }

size_t cipher_key_bytes(const struct cipher *cipher) { return cipher->kind->key_bytes; }

static bool init(struct cipher *cipher, const uint8_t *key, size_t key_len, const uint8_t *number)
{
    return (cipher->seals ? cipher->kind->seals : cipher->kind->opens)(
               cipher->state, key, key_len, number, number == NULL ? 0 : CIPHER_NUMBER_BYTES,
               NULL) == 1;
}

bool cipher_use(struct cipher *cipher, const uint8_t *key)
{
    return init(cipher, key, cipher->kind->key_bytes, NULL);
}

/* ---- a message ---- */

bool cipher_begin(struct cipher *cipher, const uint8_t *number, const uint8_t *head, size_t len)
{
    size_t got = 0;
    /* Nothing is written of a head; how much may be is asked for all the same. */
    return init(cipher, NULL, 0, number) &&
           cipher->kind->update(cipher->state, NULL, &got, len, head, len) == 1;
}

bool cipher_update(struct cipher *cipher, const uint8_t *in, size_t len, uint8_t *out)
{
    size_t got = 0;
    return cipher->kind->update(cipher->state, out, &got, len, in, len) == 1 && got == len;
}

static bool end(struct cipher *cipher)
{
    uint8_t none[CIPHER_TAG_BYTES];
    size_t got = 0;
    return cipher->kind->final(cipher->state, none, &got, sizeof none) == 1 && got == 0;
}

bool cipher_seal(struct cipher *cipher, uint8_t *tag)
{
    assert(cipher->seals);
    OSSL_PARAM asked[] = {
        OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, tag, CIPHER_TAG_BYTES),
        OSSL_PARAM_construct_end()};
    return end(cipher) && cipher->kind->tell(cipher->state, asked) == 1;
}

bool cipher_open(struct cipher *cipher, const uint8_t *tag)
{
    assert(!cipher->seals);
    const OSSL_PARAM given[] = {OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG,
                                                                  (void *)tag, CIPHER_TAG_BYTES),
                                OSSL_PARAM_construct_end()};
    return cipher->kind->take(cipher->state, given) == 1 && end(cipher);
}
