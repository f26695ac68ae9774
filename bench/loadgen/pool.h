/* The payload pool: different, compressible JSON events, made before the clock starts. */
#ifndef LOADGEN_POOL_H
#define LOADGEN_POOL_H

#include <stddef.h>
#include <stdint.h>

/* What one request carries. */
struct body {
    const char *p;
    uint32_t len;    /* bytes */
    uint32_t events; /* events among these bytes */
};

struct pool {
    char *bytes;
    size_t len;
    struct body *bodies;
    size_t count;
};

struct pool_spec {
    size_t pool_bytes;     /* about how many bytes to generate */
    uint32_t event_bytes;  /* mean size of one event, without its line feed */
    uint32_t event_jitter; /* sizes vary evenly by this many bytes up and down */
    uint32_t body_bytes;   /* 0: one event a body; else NDJSON bodies of at most this size */
    uint64_t seed;
};

#define POOL_EVENT_BYTES_MIN 96

/* Writes one JSON object of exactly len bytes (at least POOL_EVENT_BYTES_MIN). */
void pool_event(uint64_t *random, char *out, uint32_t len);

int pool_generate(struct pool *pool, const struct pool_spec *spec);

/* One body: the whole file, counted as one event. */
int pool_load_file(struct pool *pool, const char *path);

/* Frames of {u32 bytes, u32 events, bytes}, little-endian: any bodies, made by somebody else. */
int pool_load_frames(struct pool *pool, const char *path);

void pool_free(struct pool *pool);

#endif
