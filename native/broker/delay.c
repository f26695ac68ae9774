#include "broker/delay.h"

#include <assert.h>
#include <string.h>

#include "base/moment.h"
#include "http/uri.h"

#define PAST_US_MAX (86400LL * 1000000) /* what is older was meant in another unit */

static bool is_named(const struct http1_slice *name, const char *lower)
{
    for (uint32_t i = 0; i < name->len; i++)
        if ((name->p[i] | 0x20) != lower[i] && name->p[i] != lower[i])
            return false;
    return true;
}

void delay_note(struct delay *delay, const struct http1_slice *name,
                const struct http1_slice *value)
{
    static const char at[] = "barco-deliver-at", after[] = "barco-deliver-after";
    struct http1_slice *to = NULL;
    if (name->len == sizeof at - 1 && is_named(name, at))
        to = &delay->at;
    else if (name->len == sizeof after - 1 && is_named(name, after))
        to = &delay->after;
    if (to == NULL)
        return;
    delay->again |= to->p != NULL;
    *to = *value;
}

/* Each event of a batch at its own time. */
static bool is_own(const struct delay *delay)
{
    static const char own[] = "timestamp";
    return delay->at.len == sizeof own - 1 && memcmp(delay->at.p, own, sizeof own - 1) == 0;
}

void delay_bounds(const struct reactor *reactor, int64_t *least_us, int64_t *most_us)
{
    assert(reactor->delay_us_max >= 0);
    *least_us = reactor->loop.wall_us - PAST_US_MAX;
    if (*least_us < 1) /* 0 is no time; a clock that nobody has set says 1970 */
        *least_us = 1;
    *most_us = reactor->loop.wall_us + reactor->delay_us_max;
}

static uint16_t due_problem(const struct reactor *reactor, int64_t first_us, int64_t last_us)
{
    int64_t least_us, most_us;
    delay_bounds(reactor, &least_us, &most_us);
    if (first_us < least_us)
        return PROBLEM_BAD_DELAY;
    return last_us > most_us ? PROBLEM_FAR_DELAY : PROBLEM_NONE;
}

uint16_t delay_batch(const struct reactor *reactor, int64_t first_us, int64_t last_us)
{
    assert(first_us <= last_us);
    return due_problem(reactor, first_us, last_us);
}

/* When it is due, by the clock of whoever takes the event in. */
static uint16_t due_of(const struct reactor *reactor, const struct delay *delay, int64_t *due_us)
{
    int64_t span_us;
    assert(delay_asked(delay));
    if (delay->again || (delay->at.p != NULL && delay->after.p != NULL))
        return PROBLEM_BAD_DELAY;
    if (delay->after.p != NULL) {
        if (!span_parse(delay->after.p, delay->after.len, &span_us))
            return PROBLEM_BAD_DELAY;
        *due_us = reactor->loop.wall_us + span_us;
    } else if (!moment_parse(delay->at.p, delay->at.len, due_us)) {
        return PROBLEM_BAD_DELAY;
    }
    return due_problem(reactor, *due_us, *due_us);
}

uint16_t delay_apply(struct reactor *reactor, const struct delay *delay,
                     const struct http1_slice *topic, struct produce *produce)
{
    int64_t due_us = 0;
    assert(delay_asked(delay));
    const bool own = is_own(delay) && !delay->again && delay->after.p == NULL;
    const uint16_t problem = own ? PROBLEM_NONE : due_of(reactor, delay, &due_us);
    if (problem != PROBLEM_NONE)
        return problem;
    if (produce->content != (own ? CONTENT_BATCH : CONTENT_EVENT) || produce->timestamp != 0 ||
        topic->len > TOPIC_NAME_BYTES_MAX - DELAYED_PREFIX_BYTES)
        return PROBLEM_BAD_DELAY;
    if (!reactor_takes_headers(reactor)) /* who reads those knows what waits, too */
        return PROBLEM_OLD_BROKERS;
    produce->timestamp = due_us;
    produce->delayed = own; /* what the batch says is known when it is here */
    return PROBLEM_NONE;
}

uint16_t delay_topic(struct reactor *reactor, struct produce *produce)
{
    char name[TOPIC_NAME_BYTES_MAX];
    const struct topic *own = produce->topic;
    assert(!own->delayed && own->name_len <= sizeof name - DELAYED_PREFIX_BYTES);
    memcpy(name, DELAYED_PREFIX, DELAYED_PREFIX_BYTES);
    memcpy(name + DELAYED_PREFIX_BYTES, own->name, own->name_len);
    assert(topic_name_delayed(name, own->name_len + DELAYED_PREFIX_BYTES));
    produce->topic = shard_topic_asked(reactor->shard, name, own->name_len + DELAYED_PREFIX_BYTES);
    return produce->topic == NULL ? PROBLEM_TOO_MANY_TOPICS : PROBLEM_NONE;
}

uint16_t delay_lines(struct reactor *reactor, struct produce *produce)
{
    assert(produce->content == CONTENT_KEYED && !produce->key_field);
    if (produce->timestamp != 0 ||
        produce->topic->name_len > TOPIC_NAME_BYTES_MAX - DELAYED_PREFIX_BYTES)
        return PROBLEM_BAD_DELAY;
    if (!reactor_takes_headers(reactor))
        return PROBLEM_OLD_BROKERS;
    return delay_topic(reactor, produce);
}
