#include "log/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "http/uri.h"
#include "log/shard.h"

struct topic_ref {
    const uint8_t *name;
    uint8_t len, declared;
    bool shared, internal;
    uint32_t place; /* its number in the bytes that it is of, then in those that are made */
};

struct value_ref {
    struct value_row row;
    const uint8_t *bytes; /* key, then value */
};

/* A state that was looked through: its rows by topic (by name), then slice, then what they are of,
 * none twice. */
struct state {
    uint32_t slice_first, slice_count, clock_s;
    struct topic_ref *topics;
    struct stream_row *streams;
    struct producer_row *producers;
    struct value_ref *values;
    uint32_t topic_count, stream_count, producer_count, value_count;
};

static void state_free(struct state *state)
{
    free(state->topics);
    free(state->streams);
    free(state->producers);
    free(state->values);
}

/* ---- order ---- */

static int by_number(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static int by_bytes(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    const size_t len = a_len < b_len ? a_len : b_len;
    const int order = len ? memcmp(a, b, len) : 0;
    return order ? order : by_number(a_len, b_len);
}

static int by_place(uint32_t topic, uint32_t slice, uint32_t other_topic, uint32_t other_slice)
{
    const int order = by_number(topic, other_topic);
    return order ? order : by_number(slice, other_slice);
}

static int by_name(const void *one, const void *other)
{
    const struct topic_ref *a = one, *b = other;
    return by_bytes(a->name, a->len, b->name, b->len);
}

static int by_stream(const void *one, const void *other)
{
    const struct stream_row *a = one, *b = other;
    return by_place(a->topic, a->slice, b->topic, b->slice);
}

static int by_producer(const void *one, const void *other)
{
    const struct producer_row *a = one, *b = other;
    const int order = by_place(a->topic, a->slice, b->topic, b->slice);
    return order ? order : memcmp(a->id, b->id, sizeof a->id);
}

static int by_key(const void *one, const void *other)
{
    const struct value_ref *a = one, *b = other;
    const int order = by_place(a->row.topic, a->row.slice, b->row.topic, b->row.slice);
    return order ? order : by_bytes(a->bytes, a->row.key_len, b->bytes, b->row.key_len);
}

static void sort(void *rows, size_t count, size_t size, int (*order)(const void *, const void *))
{
    if (count > 1) /* there may be no rows at all */
        qsort(rows, count, size, order);
}

static bool twice(const void *rows, size_t count, size_t size,
                  int (*order)(const void *, const void *))
{
    const uint8_t *row = rows;
    for (size_t i = 1; i < count; i++)
        if (order(row + (i - 1) * size, row + i * size) == 0)
            return true;
    return false;
}

/* ---- reading ---- */

struct cursor {
    const uint8_t *at;
    size_t left;
};

static bool copy_out(struct cursor *c, void *to, size_t len)
{
    if (c->left < len)
        return false;
    if (len)
        memcpy(to, c->at, len);
    c->at += len;
    c->left -= len;
    return true;
}

/* Room for count rows, of which each takes at least so many bytes of those that are left. */
static void *room_for(const struct cursor *c, uint32_t count, size_t bytes_min, size_t size)
{
    assert(bytes_min > 0 && size > 0);
    return count <= c->left / bytes_min ? calloc((size_t)count + 1, size) : NULL;
}

static bool owns(const struct state *state, uint32_t slice)
{
    return slice >= state->slice_first && slice - state->slice_first < state->slice_count;
}

/* Also the table of the topics' new numbers, by their old ones. */
static bool read_topics(struct state *state, struct cursor *c, uint32_t count, uint32_t **places)
{
    state->topics = count <= TOPICS_MAX ? room_for(c, count, 3, sizeof *state->topics) : NULL;
    *places = calloc((size_t)(count <= TOPICS_MAX ? count : 0) + 1, sizeof **places);
    if (state->topics == NULL || *places == NULL)
        return false;
    for (; state->topic_count < count; state->topic_count++) {
        struct topic_ref *topic = &state->topics[state->topic_count];
        if (!copy_out(c, &topic->len, 1) || !copy_out(c, &topic->declared, 1) ||
            c->left < topic->len || topic->declared > 1 ||
            !topic_name_valid((const char *)c->at, topic->len))
            return false;
        topic->name = c->at;
        topic->place = state->topic_count;
        topic->internal = topic_name_reserved((const char *)c->at, topic->len);
        topic->shared = topic->len == sizeof SHARED_TOPIC - 1 &&
                        memcmp(topic->name, SHARED_TOPIC, topic->len) == 0;
        c->at += topic->len;
        c->left -= topic->len;
    }
    assert(state->topic_count == count);
    sort(state->topics, count, sizeof *state->topics, by_name);
    for (uint32_t i = 0; i < count; i++)
        (*places)[state->topics[i].place] = i;
    return !twice(state->topics, count, sizeof *state->topics, by_name);
}

static bool read_streams(struct state *state, struct cursor *c, uint32_t count,
                         const uint32_t *places)
{
    state->streams = room_for(c, count, sizeof *state->streams, sizeof *state->streams);
    if (state->streams == NULL)
        return false;
    for (; state->stream_count < count; state->stream_count++) {
        struct stream_row *row = &state->streams[state->stream_count];
        if (!copy_out(c, row, sizeof *row) || row->topic >= state->topic_count ||
            !owns(state, row->slice) || row->start_offset > INT64_MAX ||
            row->next_offset > INT64_MAX)
            return false;
        row->topic = places[row->topic];
    }
    assert(state->stream_count == count);
    sort(state->streams, count, sizeof *state->streams, by_stream);
    return !twice(state->streams, count, sizeof *state->streams, by_stream);
}

static bool read_producers(struct state *state, struct cursor *c, uint32_t count,
                           const uint32_t *places)
{
    state->producers = count <= PRODUCERS_RESTORED_MAX
                           ? room_for(c, count, sizeof *state->producers, sizeof *state->producers)
                           : NULL;
    if (state->producers == NULL)
        return false;
    for (; state->producer_count < count; state->producer_count++) {
        struct producer_row *row = &state->producers[state->producer_count];
        if (!copy_out(c, row, sizeof *row) || row->topic >= state->topic_count ||
            row->last_us < -STATE_TIME_MAX || row->last_us > STATE_TIME_MAX || row->reserved != 0)
            return false;
        const struct stream_row stream = {.topic = places[row->topic], .slice = row->slice};
        if (state->stream_count == 0 || bsearch(&stream, state->streams, state->stream_count,
                                                sizeof stream, by_stream) == NULL)
            return false; /* of a slice that is another's, too */
        row->topic = stream.topic;
    }
    assert(state->producer_count == count);
    sort(state->producers, count, sizeof *state->producers, by_producer);
    return !twice(state->producers, count, sizeof *state->producers, by_producer);
}

static bool read_values(struct state *state, struct cursor *c, uint32_t count,
                        const uint32_t *places)
{
    state->values = room_for(c, count, sizeof(struct value_row), sizeof *state->values);
    if (state->values == NULL)
        return false;
    for (; state->value_count < count; state->value_count++) {
        struct value_ref *value = &state->values[state->value_count];
        struct value_row *row = &value->row;
        if (!copy_out(c, row, sizeof *row) || row->topic >= state->topic_count ||
            row->value_len == 0 || c->left < (size_t)row->key_len + row->value_len)
            return false;
        row->topic = places[row->topic];
        const struct topic_ref *topic = &state->topics[row->topic];
        if (!topic->internal || !(topic->shared || owns(state, row->slice)))
            return false;
        value->bytes = c->at;
        c->at += (size_t)row->key_len + row->value_len;
        c->left -= (size_t)row->key_len + row->value_len;
    }
    assert(state->value_count == count);
    sort(state->values, count, sizeof *state->values, by_key);
    return !twice(state->values, count, sizeof *state->values, by_key);
}

bool state_slices(const uint8_t *bytes, size_t len, uint32_t *first, uint32_t *count)
{
    struct state_header head;
    struct cursor c = {bytes, len};
    if (!copy_out(&c, &head, sizeof head) || head.magic != STATE_MAGIC ||
        head.version != STATE_VERSION || head.slice_count == 0 ||
        head.slice_count > UINT32_MAX - head.slice_first)
        return false;
    *first = head.slice_first;
    *count = head.slice_count;
    return true;
}

static bool state_read(struct state *state, const uint8_t *bytes, size_t len)
{
    struct state_header head;
    struct cursor c = {bytes, len};
    uint32_t *places = NULL;
    *state = (struct state){0};
    if (!state_slices(bytes, len, &state->slice_first, &state->slice_count) ||
        !copy_out(&c, &head, sizeof head) || c.left < head.prefix_bytes)
        return false;
    c.at += head.prefix_bytes;
    c.left -= head.prefix_bytes;
    state->clock_s = head.clock_s;
    const bool good = read_topics(state, &c, head.topics, &places) &&
                      read_streams(state, &c, head.streams, places) &&
                      read_producers(state, &c, head.producers, places) &&
                      read_values(state, &c, head.values, places) && c.left == 0;
    free(places);
    return good;
}

/* ---- writing ---- */

static uint8_t *add(uint8_t *at, const void *bytes, size_t len)
{
    if (len)
        memcpy(at, bytes, len);
    return at + len;
}

/* Topics that nothing is of are left out, but for those that exist by themselves. */
static void number_topics(struct state *state)
{
    for (uint32_t i = 0; i < state->topic_count; i++)
        state->topics[i].place = state->topics[i].declared;
    for (uint32_t i = 0; i < state->stream_count; i++)
        state->topics[state->streams[i].topic].place = 1;
    for (uint32_t i = 0; i < state->value_count; i++)
        state->topics[state->values[i].row.topic].place = 1;
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->topic_count; i++) {
        struct topic_ref topic = state->topics[i];
        state->topics[i].place = count; /* of one that is left out nobody asks */
        if (topic.place == 0)
            state->topics[i].len = 0;
        else
            count++;
    }
}

static size_t written_bytes(const struct state *state, uint32_t *topics)
{
    size_t len = sizeof(struct state_header) + state->stream_count * sizeof(struct stream_row) +
                 state->producer_count * sizeof(struct producer_row) +
                 state->value_count * sizeof(struct value_row);
    *topics = 0;
    for (uint32_t i = 0; i < state->topic_count; i++) {
        if (state->topics[i].len == 0)
            continue;
        len += 2u + state->topics[i].len;
        ++*topics;
    }
    for (uint32_t i = 0; i < state->value_count; i++)
        len += (size_t)state->values[i].row.key_len + state->values[i].row.value_len;
    return len;
}

static uint8_t *add_rows(uint8_t *at, const struct state *state)
{
    for (uint32_t i = 0; i < state->stream_count; i++) {
        struct stream_row row = state->streams[i];
        row.topic = state->topics[row.topic].place;
        at = add(at, &row, sizeof row);
    }
    for (uint32_t i = 0; i < state->producer_count; i++) {
        struct producer_row row = state->producers[i];
        row.topic = state->topics[row.topic].place;
        at = add(at, &row, sizeof row);
    }
    for (uint32_t i = 0; i < state->value_count; i++) {
        struct value_row row = state->values[i].row;
        row.topic = state->topics[row.topic].place;
        at = add(at, &row, sizeof row);
        at = add(at, state->values[i].bytes, (size_t)row.key_len + row.value_len);
    }
    return at;
}

static uint8_t *state_write(struct state *state, size_t *len)
{
    struct state_header head = {
        .magic = STATE_MAGIC,
        .version = STATE_VERSION,
        .streams = state->stream_count,
        .producers = state->producer_count,
        .values = state->value_count,
        .clock_s = state->clock_s,
        .slice_first = state->slice_first,
        .slice_count = state->slice_count,
    };
    number_topics(state);
    *len = written_bytes(state, &head.topics);
    uint8_t *bytes = malloc(*len);
    if (bytes == NULL)
        return NULL;
    assert(head.topics <= state->topic_count); /* those of which there is nothing are left out */
    uint8_t *at = add(bytes, &head, sizeof head);
    for (uint32_t i = 0; i < state->topic_count; i++) {
        const struct topic_ref *topic = &state->topics[i];
        if (topic->len == 0)
            continue;
        const uint8_t flags[2] = {topic->len, topic->declared};
        at = add(at, flags, sizeof flags);
        at = add(at, topic->name, topic->len);
    }
    at = add_rows(at, state);
    assert((size_t)(at - bytes) == *len);
    return bytes;
}

/* ---- a split ---- */

static void keep_slices(struct state *state)
{
    assert(state->slice_count > 0);
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->stream_count; i++)
        if (owns(state, state->streams[i].slice))
            state->streams[count++] = state->streams[i];
    state->stream_count = count;
    count = 0;
    for (uint32_t i = 0; i < state->producer_count; i++)
        if (owns(state, state->producers[i].slice))
            state->producers[count++] = state->producers[i];
    state->producer_count = count;
    count = 0;
    for (uint32_t i = 0; i < state->value_count; i++)
        if (state->topics[state->values[i].row.topic].shared ||
            owns(state, state->values[i].row.slice))
            state->values[count++] = state->values[i];
    state->value_count = count;
}

uint8_t *state_cut(const uint8_t *bytes, size_t len, uint32_t slice_first, uint32_t slice_count,
                   size_t *out_len, const char **why)
{
    struct state state;
    uint8_t *out = NULL;
    if (!state_read(&state, bytes, len)) {
        *why = "it is no state";
    } else if (slice_count == 0 || slice_first < state.slice_first ||
               slice_first - state.slice_first > state.slice_count ||
               slice_count > state.slice_count - (slice_first - state.slice_first)) {
        *why = "it is a state of other slices";
    } else {
        state.slice_first = slice_first;
        state.slice_count = slice_count;
        keep_slices(&state);
        out = state_write(&state, out_len);
        *why = out ? NULL : "no memory";
    }
    state_free(&state);
    return out;
}

/* ---- a join ---- */

/* Each row's topic by its number in the list that both are now. */
static void renumber(struct state *state, const uint32_t *places)
{
    for (uint32_t i = 0; i < state->stream_count; i++)
        state->streams[i].topic = places[state->streams[i].topic];
    for (uint32_t i = 0; i < state->producer_count; i++)
        state->producers[i].topic = places[state->producers[i].topic];
    for (uint32_t i = 0; i < state->value_count; i++)
        state->values[i].row.topic = places[state->values[i].row.topic];
}

/* Both lists of topics as one; then from's rows say its numbers. False without memory. */
static bool join_topics(struct state *into, struct state *from)
{
    const uint32_t most = into->topic_count + from->topic_count;
    struct topic_ref *all = calloc((size_t)most + 1, sizeof *all);
    uint32_t *places = calloc((size_t)most + 1, sizeof *places), a = 0, b = 0, count = 0;
    if (all == NULL || places == NULL) {
        free(all);
        free(places);
        return false;
    }
    uint32_t *others = places + into->topic_count;
    while (a < into->topic_count || b < from->topic_count) {
        int order = a == into->topic_count ? 1 : b == from->topic_count ? -1 : 0;
        if (order == 0)
            order = by_name(&into->topics[a], &from->topics[b]);
        all[count] = order <= 0 ? into->topics[a] : from->topics[b];
        if (order == 0) /* it exists if one of them says so */
            all[count].declared |= from->topics[b].declared;
        if (order <= 0)
            places[a++] = count;
        if (order >= 0)
            others[b++] = count;
        count++;
    }
    renumber(into, places);
    renumber(from, others);
    assert(count <= most && a == into->topic_count && b == from->topic_count);
    free(into->topics);
    free(places);
    into->topics = all;
    into->topic_count = count;
    return true;
}

/* The logs' own clocks differ: who was heard of a minute ago was so by either of them. */
static void set_clock(struct state *state, uint32_t clock_s)
{
    const int64_t later_us = (int64_t)(clock_s - state->clock_s) * 1000000;
    assert(clock_s >= state->clock_s);
    for (uint32_t i = 0; state->clock_s != 0 && i < state->producer_count; i++) {
        int64_t *last_us = &state->producers[i].last_us;
        *last_us = *last_us > STATE_TIME_MAX - later_us ? STATE_TIME_MAX : *last_us + later_us;
    }
    state->clock_s = clock_s;
}

/* `rows`: where the pointer to so many stands, which becomes one to those and more behind them. */
static bool joined(void *rows, uint32_t *count, const void *from, uint32_t more, size_t size)
{
    uint8_t *all;
    memcpy(&all, rows, sizeof all);
    all = realloc(all, ((size_t)*count + more + 1) * size);
    if (all == NULL)
        return false;
    memcpy(rows, &all, sizeof all);
    if (more > 0)
        memcpy(all + *count * size, from, more * size);
    *count += more;
    return true;
}

static bool join_rows(struct state *into, const struct state *from)
{
    if (!joined(&into->streams, &into->stream_count, from->streams, from->stream_count,
                sizeof *into->streams) ||
        !joined(&into->producers, &into->producer_count, from->producers, from->producer_count,
                sizeof *into->producers) ||
        !joined(&into->values, &into->value_count, from->values, from->value_count,
                sizeof *into->values))
        return false;
    assert(into->stream_count >= from->stream_count && into->value_count >= from->value_count);
    sort(into->streams, into->stream_count, sizeof *into->streams, by_stream);
    sort(into->producers, into->producer_count, sizeof *into->producers, by_producer);
    sort(into->values, into->value_count, sizeof *into->values, by_key);
    return true;
}

/* What one has of the other's slices is a copy from when they were split; who has the slice knows
 * more, and what is not there any more. */
static void leave_to(struct state *state, const struct state *owner)
{
    uint32_t count = 0;
    assert(!owns(state, owner->slice_first));
    for (uint32_t i = 0; i < state->value_count; i++)
        if (!owns(owner, state->values[i].row.slice))
            state->values[count++] = state->values[i];
    state->value_count = count;
}

/* Of two copies of what is written elsewhere the later event counts. False: one event, two values.
 */
static bool choose_values(struct state *state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->value_count; i++) {
        struct value_ref *value = &state->values[i];
        if (count == 0 || by_key(&state->values[count - 1], value) != 0) {
            state->values[count++] = *value;
            continue;
        }
        struct value_ref *before = &state->values[count - 1];
        if (before->row.offset == value->row.offset &&
            (before->row.value_len != value->row.value_len ||
             memcmp(before->bytes, value->bytes,
                    (size_t)value->row.key_len + value->row.value_len) != 0))
            return false;
        if (value->row.offset > before->row.offset)
            *before = *value;
    }
    assert(count <= state->value_count);
    state->value_count = count;
    return true;
}

static const char *join(struct state *into, struct state *from)
{
    if (into->slice_first + into->slice_count != from->slice_first)
        return "their slices are no neighbours";
    leave_to(into, from);
    leave_to(from, into);
    const uint32_t clock_s = into->clock_s > from->clock_s ? into->clock_s : from->clock_s;
    set_clock(into, clock_s);
    set_clock(from, clock_s);
    if (!join_topics(into, from) || !join_rows(into, from))
        return "no memory";
    into->slice_count += from->slice_count;
    if (into->topic_count > TOPICS_MAX || into->producer_count > PRODUCERS_RESTORED_MAX)
        return "together they have more than one range can have";
    return choose_values(into) ? NULL : "they have two values of one event";
}

uint8_t *state_union(const uint8_t *one, size_t one_len, const uint8_t *other, size_t other_len,
                     size_t *out_len, const char **why)
{
    struct state a, b = {0};
    uint8_t *out = NULL;
    *why = "it is no state";
    if (state_read(&a, one, one_len) && state_read(&b, other, other_len)) {
        const bool first = a.slice_first <= b.slice_first;
        struct state *into = first ? &a : &b, *from = first ? &b : &a;
        *why = join(into, from);
        if (*why == NULL) {
            out = state_write(into, out_len);
            *why = out ? NULL : "no memory";
        }
    }
    state_free(&a);
    state_free(&b);
    return out;
}
