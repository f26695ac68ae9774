/* Lines of JSON as server-sent events. */
#include "read/events.h"

#include <string.h>

#include "base/decimal.h"

static char *put(char *at, const char *text, size_t len)
{
    memcpy(at, text, len);
    return at + len;
}

static char *put_hex(char *at, uint64_t value, int digits)
{
    while (digits-- > 0)
        *at++ = "0123456789abcdef"[value >> 4 * digits & 15];
    return at;
}

size_t frame_events(const char *text, size_t len, uint64_t offset, uint32_t epoch,
                    const struct event_id *id, char *out)
{
    const char *end = text + len, *line_end;
    char *at = out;
    for (; text < end; text = line_end + 1) {
        line_end = memchr(text, '\n', (size_t)(end - text));
        if (line_end == NULL)
            break;
        offset++;
        at = put(at, "id: ", 4);
        at = put(at, id->before, id->before_len);
        at = id->listed ? put_u64(at, epoch) : put_hex(at, epoch, 8);
        *at++ = id->listed ? '.' : '-';
        at = id->listed ? put_u64(at, offset) : put_hex(at, offset, 16);
        at = put(at, id->behind, id->behind_len);
        at = put(at, "\ndata: ", 7);
        at = put(at, text, (size_t)(line_end - text));
        at = put(at, "\n\n", 2);
    }
    return (size_t)(at - out);
}
