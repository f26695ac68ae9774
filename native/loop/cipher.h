/* cipher: an AEAD cipher of OpenSSL's, asked without EVP. EVP looks for each parameter by its name
 * and asks for the length of a number that never changes, again with each record: as much time as
 * the cipher itself takes for a short one. What is called here is what EVP calls (the functions of
 * a provider: provider-cipher(7), OSSL_PROVIDER_query_operation(3)). */
#ifndef BARCO_CIPHER_H
#define BARCO_CIPHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CIPHER_TAG_BYTES 16u
#define CIPHER_NUMBER_BYTES 12u

struct cipher; /* with a key, for one direction */

/* By OpenSSL's number of it (NID); NULL: no provider has it, or there is no memory. */
struct cipher *cipher_new(int nid, bool seals);
void cipher_free(struct cipher *cipher); /* nothing of the key is left in memory */
int cipher_nid(const struct cipher *cipher);
/* How long its key is. */
size_t cipher_key_bytes(const struct cipher *cipher);
bool cipher_use(struct cipher *cipher, const uint8_t *key);

/* A message begins: its number of CIPHER_NUMBER_BYTES, and what its tag vouches for unsealed. */
bool cipher_begin(struct cipher *cipher, const uint8_t *number, const uint8_t *head, size_t len);
/* More of it, into as many bytes, which may be the same. */
bool cipher_update(struct cipher *cipher, const uint8_t *in, size_t len, uint8_t *out);
/* It has ended: its tag of CIPHER_TAG_BYTES. */
bool cipher_seal(struct cipher *cipher, uint8_t *tag);
/* It has ended; false: it is not what has this tag, and what was opened is nobody's. */
bool cipher_open(struct cipher *cipher, const uint8_t *tag);

#endif
