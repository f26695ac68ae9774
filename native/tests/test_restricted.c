/* The loop's io_uring does what the loop does, and nothing else that the kernel could do for it. */
#include "loop/net_uring.c" /* its ring is nobody else's to see */

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>

/* What the kernel says to an operation. */
static int said_of(struct net_uring *u, void (*prepare)(struct io_uring_sqe *))
{
    struct io_uring_cqe *cqe = NULL;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->uring);
    assert(sqe != NULL);
    prepare(sqe);
    sqe->user_data = 7;
    const int status = io_uring_submit_and_wait(&u->uring, 1);
    assert(status >= 0 && io_uring_peek_cqe(&u->uring, &cqe) == 0 && cqe->user_data == 7);
    const int found = cqe->res;
    io_uring_cqe_seen(&u->uring, cqe);
    return found;
}

static void open_it(struct io_uring_sqe *sqe)
{
    io_uring_prep_openat(sqe, AT_FDCWD, "/dev/null", O_RDONLY, 0);
}

static void read_it(struct io_uring_sqe *sqe)
{
    static char byte;
    io_uring_prep_read(sqe, 0, &byte, 1, 0);
}

static void connect_it(struct io_uring_sqe *sqe)
{
    static const struct sockaddr any;
    io_uring_prep_connect(sqe, 0, &any, sizeof any);
}

static void drain_it(struct io_uring_sqe *sqe)
{
    io_uring_prep_cancel64(sqe, 1, 0);
    sqe->flags |= IOSQE_IO_DRAIN;
}

static void cancel_it(struct io_uring_sqe *sqe) { io_uring_prep_cancel64(sqe, 1, 0); }

int main(void)
{
    const char *reason = "";
    struct loop loop = {0};
    struct net *net = net_uring_new(&loop, &reason);
    if (net == NULL) {
        printf("no io_uring here: %s\n", reason);
        return 0;
    }
    struct net_uring *u = (struct net_uring *)net;
    assert(said_of(u, open_it) == -EACCES && said_of(u, read_it) == -EACCES);
    assert(said_of(u, connect_it) == -EACCES && said_of(u, drain_it) == -EACCES);
    assert(said_of(u, cancel_it) == -ENOENT); /* it was looked for: that much is done */
    assert(io_uring_register_files(&u->uring, (const int[]){0}, 1) == -EACCES);
    net->free(net);
    return 0;
}
