/* inflate: bodies with a Content-Encoding, unpacked a piece at a time into room that the caller
 * gives. What a body claims about its size is a hint and no more. */
#ifndef BARCO_INFLATE_H
#define BARCO_INFLATE_H

#include <stddef.h>
#include <stdint.h>

#include "http/http1.h"

enum coding { CODING_NONE, CODING_GZIP, CODING_LZ4, CODING_ZSTD, CODING_UNKNOWN };

#define INFLATE_CODINGS "gzip, lz4, zstd" /* as Accept-Encoding names them */
/* The most that a decoder takes for itself: two blocks of an LZ4 frame, and what goes before them;
 * or zstd's window, and the block behind it. */
#define INFLATE_OWN_BYTES (9u << 20)
#define INFLATE_WINDOW_MAX (8u << 20) /* zstd's: RFC 9659 has it so for this very use */
/* Members of gzip, or frames of the others, of one body: each costs time, however little is in it.
 */
#define INFLATE_MEMBERS_MAX 4096u

enum coding inflate_coding(const struct http1_slice *name);

struct inflater;
/* NULL without memory. */
struct inflater *inflate_new(enum coding coding);
void inflate_free(struct inflater *inflater);
/* How long a whole body says that it is when it is unpacked; 0: it does not say. Of several frames
 * it is the first that says it, of gzip's members the last. */
uint64_t inflate_hint(enum coding coding, const uint8_t *in, size_t len);
/* Unpacks from the rest of a body. 1: all of it is unpacked; 0: out is full; -1: malformed, or it
 * ends too early; -2: without memory. *used and *made are always set. */
int inflate_some(struct inflater *inflater, const uint8_t *in, size_t len, size_t *used,
                 uint8_t *out, size_t cap, size_t *made);

#endif
