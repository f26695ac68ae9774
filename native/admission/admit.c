/* Who is let in: while descriptors or room are short, connections that ask for nothing make room
 * for who comes, those first whose address holds many; nobody makes room for an address that holds
 * more than its own. Where all of them are busy the newcomer is told so, in the words of what is
 * spoken there. Other processes, and the files of the log, are kept clear of that by descriptors
 * that no client gets. */
#define _GNU_SOURCE
#include "admission/admit.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>


/* Descriptors that clients leave free, for files, other processes and what is being closed. */
#define SPARE_SHARE 8u
#define SPARE_MIN 24u
#define SPARE_MAX 256u
#define SINGLY_BELOW 8192u /* descriptors left: the backlogs of all listeners at once, and more */
#define OUSTED_SHARE 32u   /* of all connections, at a time: to look for them costs a look at all */
#define OUSTED_MAX 16u
#define NOBODY_MS 5       /* so long nobody is looked for again */
#define RETRY_MS 20       /* after an accept that failed */
#define UNREAD_MS 1000    /* of who does not read its answer, or does not end its head */
#define SILENT_MS 5       /* of who has come and asked for nothing */
#define IDLE_MS 1000      /* of who has asked, and may ask again */
#define ANYBODY 0u        /* is the newcomer: nothing is known of it */
#define SWARM 4u          /* more in weight: 16 times as many connections, about */
#define ASKED_BIT 50      /* of a rank: above all times, below the weights */
#define TURNED_AWAY_MS 2000
#define REFUSED_AT_ONCE 16

/* What has been read of a client that is refused must not come back to it as a reset, which would
 * overtake the answer. */
static void read_over(int fd)
{
    uint8_t bytes[4096];
    for (unsigned n = 0; n < 64 && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0; n++)
        continue;
}

static uint32_t spare(const struct admission *admission)
{
    const uint32_t share = admission->files_max / SPARE_SHARE;
    return share < SPARE_MIN ? SPARE_MIN : share > SPARE_MAX ? SPARE_MAX : share;
}

/* The kernel gives the lowest number that is free: a high one says how many are used. */
static bool is_scarce(const struct admission *admission, int fd)
{
    return (uint32_t)fd + spare(admission) >= admission->files_max;
}

/* Whether connections are accepted one at a time, because many at once could use up descriptors. */
static void note_singly(struct reactor *reactor)
{
    const struct admission *admission = &reactor->admission;
    reactor->loop.accept_singly =
        admission->newest + SINGLY_BELOW + spare(admission) > admission->files_max;
}

/* ---- who holds how many ---- */

static uint8_t class_of(int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;
    uint64_t key = 0;
    if (getpeername(fd, (struct sockaddr *)&at, &len) != 0)
        return 0;
    if (at.ss_family == AF_INET)
        key = ((const struct sockaddr_in *)&at)->sin_addr.s_addr;
    else if (at.ss_family == AF_INET6) {
        const struct in6_addr *address = &((const struct sockaddr_in6 *)&at)->sin6_addr;
        uint32_t ipv4;
        if (IN6_IS_ADDR_V4MAPPED(address)) { /* of a client by IPv4 at a listener for both */
            memcpy(&ipv4, address->s6_addr + 12, sizeof ipv4);
            key = ipv4;
        } else { /* a site's 64 bits: the rest is its own to choose */
            memcpy(&key, address->s6_addr, sizeof key);
        }
    }
    return (uint8_t)(key * 0x9e3779b97f4a7c15ULL >> 56);
}

/* Powers of two: who holds a few more than another one counts as much. */
static uint32_t weight_of(uint32_t connections)
{
    return connections == 0 ? 0 : 32 - (uint32_t)__builtin_clz(connections);
}

/* As its address weighs without it: who holds some may replace one of these. */
static uint32_t weight_of_newcomer(const struct admission *admission, int fd)
{
    const uint32_t held = admission->held[class_of(fd)];
    assert(held <= admission->connections);
    return weight_of(held == 0 ? 1 : held);
}

void admit_came(struct guest *guest)
{
    const struct protocol *protocol = guest->conn.protocol;
    struct admission *admission = &conn_reactor(&guest->conn)->admission;
    assert(protocol->clients && protocol->bytes >= sizeof *guest);
    assert(protocol->engaged && protocol->holds && protocol->slim && protocol->turned_away);
    guest->address = class_of(guest->conn.fd);
    admission->connections++;
    admission->held[guest->address]++;
    assert(admission->held[guest->address] <= admission->connections);
}

void admit_gone(const struct guest *guest)
{
    struct admission *admission = &conn_reactor(&guest->conn)->admission;
    assert(admission->connections > 0 && admission->held[guest->address] > 0);
    admission->connections--;
    admission->held[guest->address]--;
    assert(admission->held[guest->address] <= admission->connections);
}

/* ---- who goes ---- */

/* Whether it makes no request, or does not go on with what it began. */
static bool is_spare(const struct reactor *reactor, const struct conn *conn, enum engaged engaged,
                     bool patient)
{
    const int64_t age = reactor->loop.now_ms - conn->since_ms;
    if (engaged == ENGAGED_LEAVES)
        return conn->out_first == NULL;
    if (conn->sending && reactor->loop.now_ms - conn->send_ms >= UNREAD_MS)
        return true;
    if (engaged == ENGAGED || conn->out_first != NULL)
        return false;
    if (conn->in_len > 0)
        return age >= UNREAD_MS;
    return age >= (engaged == ENGAGED_NEVER ? SILENT_MS : patient ? IDLE_MS : 0);
}

/* Those first whose address holds most, by powers of two; of these who have not asked, then those
 * of whom nothing has been heard for the longest time. INT64_MAX: it stays. That is who is busy, or
 * was just now, unless it is one of a swarm; and whose address holds less than the newcomer's. */
static int64_t standing(const struct reactor *reactor, const struct conn *conn, uint32_t newcomer)
{
    if (!is_guest(conn) || conn->closed)
        return INT64_MAX;
    const uint32_t weight = weight_of(reactor->admission.held[guest_of(conn)->address]);
    const bool swarm = newcomer != ANYBODY && weight >= newcomer + SWARM;
    const enum engaged engaged = conn->protocol->engaged(conn);
    if (weight < newcomer || !is_spare(reactor, conn, engaged, !swarm))
        return INT64_MAX;
    const bool asked = (engaged == ENGAGED || engaged == ENGAGED_NOT) && conn->in_len == 0;
    assert(weight <= 32 && conn->since_ms < 1LL << ASKED_BIT);
    return (int64_t)(32 - weight) << (ASKED_BIT + 1) | (int64_t)asked << ASKED_BIT | conn->since_ms;
}

/* Closes connections that nobody needs, those first that stand lowest, for one of that weight. How
 * many. */
static unsigned oust(struct reactor *reactor, uint32_t newcomer)
{
    struct admission *admission = &reactor->admission;
    struct conn *chosen[OUSTED_MAX];
    int64_t rank[OUSTED_MAX];
    unsigned count = 0, most = admission->connections / OUSTED_SHARE;
    if (reactor->loop.now_ms < admission->nobody_ms && newcomer >= admission->nobody_for)
        return 0;
    most = most < 1 ? 1 : most > OUSTED_MAX ? OUSTED_MAX : most;
    for (struct conn *conn = reactor->loop.conns; conn != NULL; conn = conn->next) {
        const int64_t own = standing(reactor, conn, newcomer);
        if (own == INT64_MAX || (count == most && own >= rank[count - 1]))
            continue;
        unsigned at = count < most ? count++ : most - 1;
        for (; at > 0 && rank[at - 1] > own; at--) {
            rank[at] = rank[at - 1];
            chosen[at] = chosen[at - 1];
        }
        rank[at] = own;
        chosen[at] = conn;
    }
    assert(count <= most && most <= OUSTED_MAX); /* the room for them */
    for (unsigned i = 0; i < count; i++)
        conn_close(chosen[i]);
    if (count == 0 && newcomer != ANYBODY) {
        admission->nobody_ms = reactor->loop.now_ms + NOBODY_MS;
        admission->nobody_for = newcomer;
    }
    admission->ousted += count;
    return count;
}

/* Whether one more may come in, whose descriptor is there already. */
static bool has_room(struct reactor *reactor, int fd)
{
    struct admission *admission = &reactor->admission;
    const bool full = admission->connections >= reactor->options.connections_max;
    if (!full && !is_scarce(admission, fd))
        return true;
    /* The descriptors of those who go are free in the next turn. */
    if (admission->promised_turn != reactor->loop.turns || admission->promised == 0) {
        admission->promised_turn = reactor->loop.turns;
        admission->promised = oust(reactor, weight_of_newcomer(admission, fd));
    }
    assert(admission->promised <= OUSTED_MAX);
    if (admission->promised == 0)
        return false;
    admission->promised--;
    return true;
}

/* ---- who is told to come back ---- */

static void see_off(struct turned_away *away)
{
    assert(away->fd >= 0);
    read_over(away->fd);
    close(away->fd);
    away->fd = -1;
}

/* The answer, and the descriptor for a moment more, so that it is read before the end. */
static void turn_away(struct reactor *reactor, const struct listener *listener, int fd)
{
    struct admission *admission = &reactor->admission;
    char answer[640];
    admission->refused++;
    read_over(fd);
    /* Before a handshake nothing can be said, and to other processes there is nothing to say. */
    if (listener->transport->bare && listener->protocol->clients) {
        const size_t len = listener->protocol->turned_away(&reactor->loop, answer, sizeof answer);
        assert(len < sizeof answer);
        send(fd, answer, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    shutdown(fd, SHUT_WR);
    struct turned_away *away = &admission->away[admission->next_away++ % TURNED_AWAY_MAX];
    if (away->fd >= 0)
        see_off(away);
    assert(away->fd < 0); /* its place is free */
    *away = (struct turned_away){fd, reactor->loop.now_ms};
}

/* Without a descriptor for them: the reserve is given up for each of some, for a moment. */
static void refuse_from_reserve(struct reactor *reactor, const struct listener *listener)
{
    struct admission *admission = &reactor->admission;
    for (unsigned n = 0; n < REFUSED_AT_ONCE && admission->reserve >= 0; n++) {
        close(admission->reserve);
        const int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            turn_away(reactor, listener, fd);
            for (unsigned i = 0; i < TURNED_AWAY_MAX; i++)
                if (admission->away[i].fd == fd)
                    see_off(&admission->away[i]);
        }
        admission->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            break;
    }
}

/* ---- callbacks of the engine ---- */

void admit_accepted(struct loop *loop, struct listener *listener, int fd)
{
    struct reactor *reactor = (struct reactor *)loop;
    reactor->admission.newest = (uint32_t)fd;
    note_singly(reactor);
    if (reactor->draining) {
        close(fd);
        return;
    }
    if (listener->protocol->clients && !has_room(reactor, fd)) {
        turn_away(reactor, listener, fd);
        return;
    }
    loop_adopt(loop, fd, listener->protocol, listener->transport);
}

void admit_accept_failed(struct loop *loop, struct listener *listener, int error)
{
    struct reactor *reactor = (struct reactor *)loop;
    listener->armed = false; /* for other reasons: until the sweep */
    if (error != EMFILE && error != ENFILE)
        return;
    reactor->admission.retry_ms = reactor->loop.now_ms + RETRY_MS;
    if (!reactor->draining && oust(reactor, ANYBODY) == 0)
        refuse_from_reserve(reactor, listener);
}

/* ---- now and then ---- */

void admit_init(struct reactor *reactor)
{
    struct admission *admission = &reactor->admission;
    struct rlimit limit;
    assert(admission->connections == 0);
    admission->files_max = UINT32_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < UINT32_MAX)
        admission->files_max = (uint32_t)limit.rlim_cur;
    admission->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (unsigned i = 0; i < TURNED_AWAY_MAX; i++)
        admission->away[i].fd = -1;
    note_singly(reactor);
}

void admit_free(struct reactor *reactor)
{
    for (unsigned i = 0; i < TURNED_AWAY_MAX; i++)
        if (reactor->admission.away[i].fd >= 0)
            close(reactor->admission.away[i].fd);
    if (reactor->admission.reserve >= 0)
        close(reactor->admission.reserve);
}

void admit_again(struct reactor *reactor)
{
    reactor->admission.retry_ms = 0;
    for (uint32_t i = 0; i < reactor->loop.listener_count; i++) {
        struct listener *listener = &reactor->loop.listeners[i];
        if (!listener->armed && !reactor->draining)
            reactor->loop.net->listen(reactor->loop.net, listener);
    }
}

void admit_sweep(struct reactor *reactor)
{
    struct admission *admission = &reactor->admission;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) /* somebody may have raised it */
        admission->files_max = limit.rlim_cur < UINT32_MAX ? (uint32_t)limit.rlim_cur : UINT32_MAX;
    note_singly(reactor);
    for (unsigned i = 0; i < TURNED_AWAY_MAX; i++)
        if (admission->away[i].fd >= 0 &&
            reactor->loop.now_ms - admission->away[i].since_ms >= TURNED_AWAY_MS)
            see_off(&admission->away[i]);
    /* The log's files may have come to need more than was kept for them: a new reserve has the
     * lowest number that is free. */
    if (admission->reserve >= 0)
        close(admission->reserve);
    admission->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (admission->reserve < 0 ||
        (uint32_t)admission->reserve + spare(admission) / 2 >= admission->files_max)
        oust(reactor, ANYBODY);
    admit_again(reactor);
}
