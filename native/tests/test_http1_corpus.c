/* Replays the seeds and the found inputs of fuzz_http1 in an ordinary build. */
#include <dirent.h>
#include <stdio.h>

#include "../fuzz/fuzz_http1.c"

int main(void)
{
    char directory[4096], path[8192];
    static uint8_t data[1 << 20];
    const char *slash = strrchr(__FILE__, '/');
    int parent = slash == NULL ? 0 : (int)(slash - __FILE__) + 1;
    snprintf(directory, sizeof(directory), "%.*s../fuzz/corpus/http1", parent, __FILE__);
    DIR *corpus = opendir(directory);
    if (corpus == NULL) {
        perror(directory);
        return 1;
    }
    int count = 0;
    for (struct dirent *entry; (entry = readdir(corpus)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        FILE *file = fopen(path, "rb");
        if (file == NULL) {
            perror(path);
            return 1;
        }
        size_t len = fread(data, 1, sizeof(data), file);
        fclose(file);
        LLVMFuzzerTestOneInput(data, len);
        count++;
    }
    closedir(corpus);
    printf("%d inputs\n", count);
    return count == 0;
}
