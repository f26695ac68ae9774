/* Whom a request is meant for, and which page sent it: a browser on this machine lends its place to
 * any page that it shows. A name that an attacker has pointed at this address (DNS rebinding) is
 * none of the broker's; a page of another origin says so in Origin. */
#include "admission/host.h"

#include <assert.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct host {
    struct host *next;
    uint32_t len;
    char text[];
};

static bool same(const char *text, size_t len, const char *other, size_t other_len)
{
    return len == other_len && strncasecmp(text, other, len) == 0;
}

static bool is_configured(const struct reactor *reactor, const char *text, size_t len)
{
    for (const struct host *host = reactor->hosts; host != NULL; host = host->next)
        if (same(text, len, host->text, host->len) || same("*", 1, host->text, host->len))
            return true;
    return false;
}

static bool is_address(const char *text, size_t len)
{
    struct in6_addr any;
    char copy[64];
    int family = AF_INET;
    if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
        family = AF_INET6;
        text++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof copy)
        return false;
    memcpy(copy, text, len);
    copy[len] = 0;
    return inet_pton(family, copy, &any) == 1;
}

/* The length of a host without its port and without the dot of a full name. */
static size_t name_len(const char *text, size_t len)
{
    size_t end = len;
    while (end > 0 && text[end - 1] >= '0' && text[end - 1] <= '9')
        end--;
    if (end > 0 && text[end - 1] == ':')
        len = end - 1;
    return len > 1 && text[len - 1] == '.' ? len - 1 : len;
}

static bool host_known(const struct reactor *reactor, const struct http1_slice *host)
{
    size_t len = name_len(host->p, host->len);
    return len == 0 || is_address(host->p, len) || same(host->p, len, "localhost", 9) ||
           is_configured(reactor, host->p, len);
}

static bool origin_known(const struct reactor *reactor, const struct http1_slice *origin,
                         const struct http1_slice *host)
{
    size_t scheme = 0;
    if (origin->len > 7 && strncasecmp(origin->p, "http://", 7) == 0)
        scheme = 7;
    else if (origin->len > 8 && strncasecmp(origin->p, "https://", 8) == 0)
        scheme = 8;
    if (scheme > 0 && host->len > 0 &&
        same(origin->p + scheme, origin->len - scheme, host->p, host->len))
        return true;
    return is_configured(reactor, origin->p, origin->len);
}

uint16_t request_origin(struct conn *conn, const struct http1_request *head)
{
    struct client *client = client_of(conn);
    const struct reactor *reactor = conn_reactor(conn);
    if (reactor->hosts == NULL)
        return PROBLEM_NONE;
    assert(client->host_len <= sizeof client->host);
    /* Clients say the same with each request. */
    if (head->host.p != NULL &&
        (head->host.len != client->host_len ||
         memcmp(head->host.p, client->host, client->host_len) != 0)) {
        if (!host_known(reactor, &head->host))
            return PROBLEM_FOREIGN_HOST;
        if (head->host.len <= sizeof client->host) {
            memcpy(client->host, head->host.p, head->host.len);
            client->host_len = (uint8_t)head->host.len;
        }
    }
    if (head->origin.p != NULL && !origin_known(reactor, &head->origin, &head->host))
        return PROBLEM_FOREIGN_ORIGIN;
    return PROBLEM_NONE;
}

bool reactor_add_host(struct reactor *reactor, const char *text, size_t len)
{
    struct host *host = malloc(sizeof *host + len);
    if (host == NULL)
        return false;
    host->len = (uint32_t)len;
    memcpy(host->text, text, len);
    host->next = reactor->hosts;
    reactor->hosts = host;
    return true;
}

void hosts_free(struct reactor *reactor)
{
    while (reactor->hosts != NULL) {
        struct host *host = reactor->hosts;
        reactor->hosts = host->next;
        free(host);
    }
}
