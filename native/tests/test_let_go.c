/* A busy loop lets its core go while a write is under way, and only then: once for each span of
 * LET_GO_US in which it has not slept. The kernel's own count of the times it slept says so. */
#include "loop/net_uring.c" /* its clock of that is nobody else's to see */

#include <assert.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static long sleeps(void)
{
    struct rusage usage;
    const int status = getrusage(RUSAGE_THREAD, &usage);
    assert(status == 0);
    return usage.ru_nvcsw;
}

#define TRIES 100 /* on a busy machine a sleep may be over before its turn to begin comes */

/* Whether it lets the core go; *slept: whether the kernel saw it sleep. */
static bool goes(struct net_uring *u, unsigned writes, int64_t since_us, bool *slept)
{
    u->writes = writes;
    loop_clock(u->loop);
    u->let_go_us = u->loop->monotonic_us - since_us;
    const int64_t before_us = u->let_go_us;
    const long before = sleeps();
    let_go(u);
    *slept = sleeps() > before;
    return u->let_go_us > before_us; /* or it would sleep again at once */
}

static void test_when(struct net_uring *u)
{
    bool slept = false;
    assert(!goes(u, 0, 10 * LET_GO_US, &slept) && !slept);
    assert(!goes(u, 1, LET_GO_US / 2, &slept) && !slept);
    for (int i = 0; i < TRIES && !slept; i++)
        assert(goes(u, 1, LET_GO_US, &slept));
    assert(slept);
    assert(goes(u, 3, 10 * LET_GO_US, &slept));
}

static void written(struct write *write, int64_t result)
{
    assert(result == 5);
    *(bool *)write->owner = true;
}

/* From the first write to the end of the last one. */
static void test_a_write_is_counted(struct net *net, struct net_uring *u)
{
    char name[] = "/tmp/barco-let-go-XXXXXX";
    bool done = false;
    struct write write = {.fd = mkstemp(name), .owner = &done, .done = written};
    assert(write.fd >= 0);
    unlink(name);
    u->writes = 0;
    u->let_go_us = 0;
    net->write(net, &write, "bytes", 5, 0);
    assert(u->writes == 1 && u->let_go_us == u->loop->monotonic_us);
    for (int i = 0; i < 1000 && !done; i++)
        net->wait(net, 10000000);
    assert(done && u->writes == 0);
    close(write.fd);
}

/* Who has just slept has let it go. */
static void test_a_sleep_counts(struct net *net, struct net_uring *u)
{
    u->writes = 1;
    u->let_go_us = 0;
    net->wait(net, 2000000);
    assert(u->let_go_us == u->loop->monotonic_us);
    const long before = sleeps();
    for (int i = 0; i < TRIES && sleeps() == before; i++) {
        u->let_go_us = 0;
        net->wait(net, 0); /* there is something to do: it does not sleep for anything else */
        assert(u->let_go_us > 0);
    }
    assert(sleeps() > before);
    u->writes = 0;
}

static void ticked(struct loop *loop, int64_t elapsed_us)
{
    assert(loop->monotonic_us > 0 && elapsed_us >= -1);
}

int main(void)
{
    static const struct loop_owner owner = {.ticked = ticked};
    const char *reason = "";
    struct loop loop = {.owner = &owner, .gather = 1};
    struct net *net = net_uring_new(&loop, &reason);
    if (net == NULL) {
        printf("no io_uring here: %s\n", reason);
        return 0;
    }
    struct net_uring *u = (struct net_uring *)net;
    test_when(u);
    test_a_write_is_counted(net, u);
    test_a_sleep_counts(net, u);
    net->free(net);
    return 0;
}
