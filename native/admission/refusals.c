/* What was refused, and to whom, for lines of the log. */
#include "admission/refusals.h"

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define ID_BYTES 32u /* of one that is made here, with its end */

bool ids_begin(struct reactor *reactor)
{
    uint8_t bytes[6];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return false;
    for (unsigned i = 0; i < sizeof bytes; i++)
        snprintf(reactor->life + 2 * i, 3, "%02x", bytes[i]);
    assert(strlen(reactor->life) == 2 * sizeof bytes);
    return true;
}

bool refusals_of(struct reactor *reactor, uint32_t users)
{
    struct refusals *refusals = reactor->refusals;
    struct tally *tallies = calloc((size_t)users + 1, sizeof *tallies);
    assert(users < NO_USER);
    if (tallies == NULL)
        return false;
    if (refusals == NULL) {
        refusals = calloc(1, sizeof *refusals);
        if (refusals == NULL) {
            free(tallies);
            return false;
        }
        reactor->refusals = refusals;
    }
    free(refusals->tallies);
    refusals->tallies = tallies;
    refusals->users = users;
    refusals->count = 0;
    refusals->any = false;
    return true;
}

void refusals_free(struct reactor *reactor)
{
    if (reactor->refusals != NULL)
        free(reactor->refusals->tallies);
    free(reactor->refusals);
    reactor->refusals = NULL;
}

void id_given(struct slot *slot, const struct http1_request *head)
{
    struct http1_slice given;
    assert(slot->id == NULL);
    if (!given_id_find(head, &given) || (slot->id = malloc(given.len + 1)) == NULL)
        return;
    memcpy(slot->id, given.p, given.len);
    slot->id[given.len] = 0;
}

const char *id_of(struct reactor *reactor, struct slot *slot)
{
    if (slot->id == NULL && (slot->id = malloc(ID_BYTES)) != NULL)
        snprintf(slot->id, ID_BYTES, "%s-%" PRIx64, reactor->life, ++reactor->ids_made);
    assert(slot->id == NULL || strlen(slot->id) <= GIVEN_ID_BYTES_MAX);
    return slot->id;
}

static uint8_t keep_text(char *into, size_t most, const struct http1_slice *text)
{
    const size_t len = text->len < most ? text->len : most;
    assert(most <= UINT8_MAX);
    memcpy(into, text->p, len);
    return (uint8_t)len;
}

static void keep_address(char *into, int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;
    into[0] = 0;
    if (getpeername(fd, (struct sockaddr *)&at, &len) != 0)
        return;
    if (at.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&at)->sin_addr, into, REFUSAL_FROM_BYTES);
    else if (at.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&at)->sin6_addr, into, REFUSAL_FROM_BYTES);
}

void refusals_note(struct conn *conn, struct slot *slot, const struct http1_slice *method,
                   const struct http1_slice *path, uint32_t user, uint16_t status,
                   const char *why)
{
    struct refusals *refusals = conn_reactor(conn)->refusals;
    slot->noted = true;
    if (refusals == NULL)
        return;
    assert(user == NO_USER || user < refusals->users);
    struct tally *tally = &refusals->tallies[user == NO_USER ? refusals->users : user];
    refusals->any = true;
    if (tally->kept >= REFUSALS_KEPT_OF_ONE || refusals->count >= REFUSALS_KEPT) {
        tally->more++;
        return;
    }
    tally->kept++;
    struct refusal *kept = &refusals->kept[refusals->count++];
    const char *id = id_of(conn_reactor(conn), slot);
    snprintf(kept->id, sizeof kept->id, "%s", id == NULL ? "" : id);
    kept->wall_us = conn->loop->wall_us;
    kept->why = why;
    kept->user = user;
    kept->status = status;
    kept->method_len = keep_text(kept->method, sizeof kept->method, method);
    kept->path_len = keep_text(kept->path, sizeof kept->path, path);
    keep_address(kept->from, conn->fd);
}

void refusals_note_produce(struct conn *conn, struct slot *slot, const struct topic *topic,
                           uint32_t user, uint16_t status, const char *why)
{
    static const char format[] = "/v1/topic/%.*s/messages";
    char path[sizeof format + TOPIC_NAME_BYTES_MAX];
    const int len = snprintf(path, sizeof path, format, (int)topic->name_len, topic->name);
    assert(len > 0 && (size_t)len < sizeof path);
    refusals_note(conn, slot, &(struct http1_slice){"POST", 4},
                  &(struct http1_slice){path, (uint32_t)len}, user, status, why);
}

void refusals_taken(struct reactor *reactor)
{
    struct refusals *refusals = reactor->refusals;
    assert(refusals != NULL && refusals->count <= REFUSALS_KEPT);
    memset(refusals->tallies, 0, ((size_t)refusals->users + 1) * sizeof *refusals->tallies);
    refusals->count = 0;
    refusals->any = false;
}
