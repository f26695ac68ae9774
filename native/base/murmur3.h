/* Key -> token: Murmur3 x64-128, seed 0, first half, with Cassandra's sign-extended tail. */
#ifndef BARCO_MURMUR3_H
#define BARCO_MURMUR3_H

#include <stddef.h>
#include <stdint.h>

/* The point of the ring a partition key hashes to. The bytes after the last whole 16 are
 * sign-extended before they are mixed in, as Cassandra and PolarStreams do: the value differs from
 * plain Murmur3 only for keys with bytes >= 0x80 there. */
int64_t murmur3_token(const void *key, size_t len);

#endif
