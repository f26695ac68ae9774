/* Routing: tokens to slices as the control plane has it, and who may be routed to. */
#include <stdlib.h>
#include <string.h>

#include "codec_testing.h"
#include "broker/reactor.h"

/* ring size, slices, token, number: from barco.model.placement. */
static const struct { uint32_t ring_size, slices; int64_t token; uint32_t number; } vectors[] = {
    {1, 8, INT64_MIN, 0},
    {1, 8, 9223372036854775807, 7},
    {1, 8, -1, 3},
    {1, 8, INT64_MIN, 0},
    {1, 8, 6917529027641081855, 6},
    {1, 8, -4511243184718316475, 2},
    {1, 8, -2609559196002828135, 2},
    {1, 1, INT64_MIN, 0},
    {1, 1, 9223372036854775807, 0},
    {1, 1, -1, 0},
    {1, 1, INT64_MIN, 0},
    {1, 1, 3513124226084228663, 0},
    {1, 1, 6299765331246476266, 0},
    {3, 8, INT64_MIN, 0},
    {3, 8, 9223372036854775807, 16},
    {3, 8, -1, 12},
    {3, 8, 3074457345618255871, 15},
    {3, 8, 3074457345618255872, 16},
    {3, 8, 3074457345618255872, 16},
    {3, 8, 2305843009213691391, 14},
    {3, 8, 2804489806378827305, 15},
    {3, 8, 554137530599832992, 12},
    {6, 4, INT64_MIN, 0},
    {6, 4, 9223372036854775807, 20},
    {6, 4, -1, 12},
    {6, 4, 6148914691236513791, 19},
    {6, 4, 6148914691236513792, 20},
    {6, 4, 3074457345618255872, 16},
    {6, 4, 2305843009213691391, 14},
    {6, 4, 6278314744523580143, 20},
    {6, 4, 5090537039564311515, 18},
    {12, 256, INT64_MIN, 0},
    {12, 256, 9223372036854775807, 2816},
    {12, 256, -1, 1536},
    {12, 256, 7686143364045642751, 2815},
    {12, 256, 7686143364045642752, 2816},
    {12, 256, 1537228672809126912, 1792},
    {12, 256, 1531223873305966251, 1790},
    {12, 256, -4629161420259339404, 765},
    {12, 256, -8266848354430668203, 159},
};

static struct reactor *ring(uint32_t ring_size, uint32_t slices, uint32_t workers)
{
    struct reactor *reactor = calloc(1, sizeof *reactor);
    reactor->options = (struct reactor_options){
        .ring_size = ring_size, .slices = slices, .workers = workers, .range_start = INT64_MIN,
        .slice_last = slices / workers - 1, .peers = ring_size == 1 ? workers : 9 * workers};
    CHECK(route_init(reactor));
    return reactor;
}

static void ring_free(struct reactor *reactor)
{
    for (uint32_t peer = 0; peer < reactor->options.peers; peer++)
        free(reactor->endpoints[peer]);
    free(reactor->endpoints);
    free(reactor->routes);
    free(reactor->abroad);
    free(reactor->peers);
    free(reactor);
}

static void test_places(void)
{
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct reactor *reactor = ring(vectors[i].ring_size, vectors[i].slices, 1);
        uint32_t number = slice_of_token(reactor, vectors[i].token);
        CHECK(number == vectors[i].number);
        CHECK(slice_of_token(reactor, slice_token(reactor, number)) == number);
        ring_free(reactor);
    }
}

static void test_ours(void)
{
    struct reactor *reactor = ring(3, 8, 2);
    CHECK(ring_slices(reactor) == 24);
    CHECK(slice_is_ours(reactor, 3) && !slice_is_ours(reactor, 4) && !slice_is_ours(reactor, 8));
    ring_free(reactor);
}

static void test_routes(void)
{
    struct reactor *reactor = ring(3, 8, 2);
    char long_name[ENDPOINT_BYTES_MAX + 2];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    for (uint32_t number = 0; number < 24; number++)
        CHECK(reactor->routes[number] == ROUTE_NONE);
    CHECK(!reactor->routed);
    CHECK(reactor_set_route(reactor, 24, 1, 1, "") == -1);
    CHECK(reactor_set_route(reactor, 20, 5, 1, "") == -1);
    CHECK(reactor_set_route(reactor, 20, UINT32_MAX, 1, "") == -1);
    CHECK(reactor_set_route(reactor, 20, 0, 1, "") == -1);
    CHECK(reactor_set_route(reactor, 20, 4, 18, "") == -1);
    CHECK(reactor_set_route(reactor, 20, 4, -2, "") == -1);
    CHECK(reactor_set_route(reactor, 20, 4, 1, long_name) == -1);
    CHECK(reactor_set_route(reactor, 3, 2, 0, "") == -1); /* we do not hold the second */
    CHECK(!reactor->routed && reactor->routes[3] == ROUTE_NONE);
    CHECK(reactor_set_route(reactor, 20, 4, 17, "127.0.0.3:9305") == 0);
    CHECK(reactor_set_route(reactor, 0, 4, 0, "127.0.0.1:9300") == 0);
    CHECK(reactor->routes[19] == ROUTE_NONE && reactor->routes[20] == 17);
    CHECK(reactor->routes[23] == 17 && reactor->routes[3] == 0 && reactor->routes[4] == ROUTE_NONE);
    CHECK(strcmp(reactor->endpoints[17], "127.0.0.3:9305") == 0 && reactor->routed);
    /* Any run of slices has a route of its own: nothing follows from a count of workers. */
    CHECK(reactor_set_route(reactor, 21, 1, 9, "127.0.0.2:9300") == 0);
    CHECK(reactor->routes[20] == 17 && reactor->routes[21] == 9 && reactor->routes[22] == 17);
    CHECK(reactor_set_route(reactor, 20, 4, ROUTE_NONE, "") == 0);
    CHECK(reactor->routes[21] == ROUTE_NONE);
    ring_free(reactor);
    reactor = ring(1, 8, 2);
    CHECK(reactor->routes[3] == 0 && reactor->routes[4] == 1 && reactor->routed);
    ring_free(reactor);
}

int main(void)
{
    test_places();
    test_ours();
    test_routes();
    return 0;
}
