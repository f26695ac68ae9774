/* Replays the seeds and the found inputs of the codec's fuzzers in an ordinary build. */
#include <dirent.h>
#include <stdio.h>

#define LLVMFuzzerTestOneInput fuzz_chunk
#include "../fuzz/fuzz_chunk.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_batch
#include "../fuzz/fuzz_batch.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_group
#include "../fuzz/fuzz_group.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_append
#include "../fuzz/fuzz_append.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_render
#include "../fuzz/fuzz_render.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_cloudevent
#include "../fuzz/fuzz_cloudevent.c"
#undef LLVMFuzzerTestOneInput

static int replay_file(const char *path, int (*target)(const uint8_t *, size_t))
{
    static uint8_t data[1 << 20];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return -1;
    }
    size_t len = fread(data, 1, sizeof(data), file);
    fclose(file);
    target(data, len);
    return 0;
}

/* Returns how many inputs there were, or -1. */
static int replay(const char *name, int (*target)(const uint8_t *, size_t))
{
    char directory[4096], path[8192];
    const char *slash = strrchr(__FILE__, '/');
    int count = 0, parent = slash == NULL ? 0 : (int)(slash - __FILE__) + 1;
    snprintf(directory, sizeof(directory), "%.*s../fuzz/corpus/%s", parent, __FILE__, name);
    DIR *corpus = opendir(directory);
    if (corpus == NULL) {
        perror(directory);
        return -1;
    }
    for (struct dirent *entry; count >= 0 && (entry = readdir(corpus)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        count = replay_file(path, target) < 0 ? -1 : count + 1;
    }
    closedir(corpus);
    printf("%s: %d inputs\n", name, count);
    return count;
}

int main(void)
{
    return !(replay("chunk", fuzz_chunk) > 0 && replay("batch", fuzz_batch) > 0 &&
             replay("group", fuzz_group) > 0 && replay("render", fuzz_render) > 0 &&
             replay("append", fuzz_append) > 0 && replay("cloudevent", fuzz_cloudevent) > 0);
}
