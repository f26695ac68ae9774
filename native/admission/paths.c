#include "admission/paths.h"

#include <assert.h>
#include <string.h>

/* barco/model/bearer.py has the same. */
static const char *const shippers[] = {"/elastic", "/services/collector", "/v1/logs", "/loki",
                                       "/api/v1/write"};

static bool begins(const struct http1_request *head, const char *prefix, size_t len)
{
    return head->path.len >= len && memcmp(head->path.p, prefix, len) == 0;
}

static bool ends(const struct http1_request *head, const char *suffix, size_t len)
{
    return head->path.len >= len && memcmp(head->path.p + head->path.len - len, suffix, len) == 0;
}

bool path_is_produce(const struct http1_request *head, struct http1_slice *topic)
{
    static const char prefix[] = "/v1/topic/", suffix[] = "/messages";
    const uint32_t len = head->path.len;
    if (len < sizeof prefix - 1 + sizeof suffix - 1 || !begins(head, prefix, sizeof prefix - 1) ||
        !ends(head, suffix, sizeof suffix - 1))
        return false;
    topic->p = head->path.p + sizeof prefix - 1;
    topic->len = len - (uint32_t)(sizeof prefix - 1 + sizeof suffix - 1);
    assert(topic->p + topic->len + sizeof suffix - 1 == head->path.p + len);
    return memchr(topic->p, '/', topic->len) == NULL;
}

bool path_is_stage(const struct http1_request *head)
{
    static const char prefix[] = "/v1/writes/", suffix[] = "/staged";
    return head->method == HTTP1_PUT && head->path.len > sizeof prefix + sizeof suffix &&
           begins(head, prefix, sizeof prefix - 1) && ends(head, suffix, sizeof suffix - 1);
}

bool path_is_shippers(const struct http1_request *head)
{
    for (size_t i = 0; i < sizeof shippers / sizeof *shippers; i++) {
        const size_t len = strlen(shippers[i]);
        assert(len > 0 && shippers[i][0] == '/');
        if (begins(head, shippers[i], len) && (head->path.len == len || head->path.p[len] == '/'))
            return true;
    }
    return false;
}

bool path_is_shipped(const struct http1_request *head)
{
    return (head->method == HTTP1_POST || head->method == HTTP1_PUT) && path_is_shippers(head);
}
