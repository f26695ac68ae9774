/* Replays the seeds of the fuzzer of shippers' bodies, and each of them spoilt in thousands of
 * ways: whatever the bytes are, nothing is read that is not there. */
#include <dirent.h>
#include <stdio.h>

#define LLVMFuzzerTestOneInput fuzz_shipped
#include "../fuzz/fuzz_shipped.c"
#undef LLVMFuzzerTestOneInput

#include "codec_testing.h"

#define SPOILT 3000
#define SEED_BYTES_MAX 4096

/* Some bytes are others, or one of another place, and the end may be missing. */
static void spoil(const uint8_t *seed, size_t len, uint64_t *random)
{
    uint8_t bytes[SEED_BYTES_MAX];
    memcpy(bytes, seed, len);
    for (uint64_t n = 1 + random_next(random) % 4; n > 0; n--) {
        const size_t at = random_next(random) % len;
        bytes[at] = random_next(random) % 2 ? (uint8_t)random_next(random)
                                            : seed[random_next(random) % len];
    }
    fuzz_shipped(bytes, random_next(random) % 3 ? len : 1 + random_next(random) % len);
}

static void replay(const char *path)
{
    uint8_t seed[SEED_BYTES_MAX];
    uint64_t random = 1;
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    const size_t len = fread(seed, 1, sizeof seed, file);
    fclose(file);
    CHECK(len > 0);
    fuzz_shipped(seed, len);
    for (int i = 0; i < SPOILT; i++)
        spoil(seed, len, &random);
}

int main(void)
{
    char directory[4096], path[8192];
    const char *slash = strrchr(__FILE__, '/');
    int count = 0, parent = slash == NULL ? 0 : (int)(slash - __FILE__) + 1;
    snprintf(directory, sizeof directory, "%.*s../fuzz/corpus/shipped", parent, __FILE__);
    DIR *corpus = opendir(directory);
    CHECK(corpus != NULL);
    for (struct dirent *entry; (entry = readdir(corpus)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        replay(path);
        count++;
    }
    closedir(corpus);
    CHECK(count >= 8);
    return 0;
}
