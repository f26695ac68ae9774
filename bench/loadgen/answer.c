#include "answer.h"

#include <string.h>
#include <strings.h>

static int name_is(const char *line, size_t len, const char *name, size_t name_len)
{
    return len > name_len && line[name_len] == ':' && !strncasecmp(line, name, name_len);
}

static void trim(const char **p, const char *end, uint32_t *len)
{
    while (*p < end && (**p == ' ' || **p == '\t'))
        (*p)++;
    while (end > *p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *len = (uint32_t)(end - *p);
}

static int header(const char *line, size_t len, const char *wanted, struct answer *out)
{
    /* The first letter decides: most headers of an answer are of no interest here. */
    int first = line[0] | 0x20;
    if (first == 'c' && name_is(line, len, "content-length", 14)) {
        uint64_t value = 0;
        for (const char *p = line + 15; p < line + len; p++) {
            if (*p == ' ')
                continue;
            if (*p < '0' || *p > '9' || value > UINT32_MAX)
                return -1;
            value = value * 10 + (uint64_t)(*p - '0');
        }
        out->body_len = value;
    } else if (first == 'c' && name_is(line, len, "connection", 10)) {
        const char *p = line + 11;
        uint32_t n;
        trim(&p, line + len, &n);
        out->closes = n == 5 && !strncasecmp(p, "close", 5);
    } else if (first == 't' && name_is(line, len, "transfer-encoding", 17)) {
        return -1; /* Nothing measured here answers in pieces. */
    } else if (wanted && first == wanted[0] && name_is(line, len, wanted, strlen(wanted))) {
        out->cursor = line + strlen(wanted) + 1;
        trim(&out->cursor, line + len, &out->cursor_len);
    }
    return 0;
}

long http_answer(const char *p, size_t len, const char *wanted, struct answer *out)
{
    const char *end = p + len, *line = p;
    *out = (struct answer){0};
    if (len < 15)
        return 0;
    if (memcmp(p, "HTTP/1.1 ", 9) != 0)
        return -1;
    out->status = (p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0');
    for (;;) {
        const char *lf = memchr(line, '\n', (size_t)(end - line));
        if (!lf)
            return 0;
        size_t line_len = (size_t)(lf - line);
        if (line_len && line[line_len - 1] == '\r')
            line_len--;
        if (line_len == 0) {
            if (out->status < 200 || out->status == 204 || out->status == 304)
                out->body_len = 0;
            return lf + 1 - p;
        }
        if (line != p && header(line, line_len, wanted, out) < 0)
            return -1;
        line = lf + 1;
    }
}

long resp_answer(const char *p, size_t len, struct answer *out)
{
    *out = (struct answer){.status = 200};
    const char *lf = len ? memchr(p, '\n', len) : NULL;
    if (!lf)
        return 0;
    long line = lf + 1 - p;
    if (p[0] == '-')
        out->status = 500;
    else if (p[0] == '$') {
        long bulk = 0;
        for (const char *d = p + 1; d < lf && *d >= '0' && *d <= '9'; d++)
            bulk = bulk * 10 + (*d - '0');
        if (p[1] == '-') /* the null bulk string: a refusal of what was asked */
            out->status = 500;
        else
            out->body_len = (uint64_t)bulk + 2;
    } else if (p[0] != '+' && p[0] != ':') {
        return -1;
    }
    return line;
}
