#include "format/pick.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct picking {
    struct batch_columns from, to;
    const uint32_t *places;
    uint64_t *starts; /* of each event's bytes in a column, for one column at a time */
    uint8_t *room, *end;
};

static void pick_words(struct picking *p, const struct column *column)
{
    const uint32_t *words = column_pointer(&p->from, column);
    uint32_t *out = (uint32_t *)(void *)p->room;
    for (uint32_t i = 0; i < p->to.count; i++)
        out[i] = words[p->places[i]];
    column_set(&p->to, column, out);
    p->room += pad8((size_t)p->to.count * 4);
}

/* False: what is asked for is more than a section may have. */
static bool pick_bytes(struct picking *p, const struct column *column)
{
    const uint32_t *lens = column_pointer(&p->from, column_of(column->beside));
    const uint8_t *bytes = column_pointer(&p->from, column);
    uint64_t at = 0, total = 0;
    for (uint32_t i = 0; i < p->from.count; i++) {
        p->starts[i] = at;
        at += lens != NULL ? bytes_of(lens[i]) : 0;
    }
    for (uint32_t i = 0; i < p->to.count && lens != NULL; i++) {
        const uint32_t place = p->places[i], len = bytes_of(lens[place]);
        if (len > (uint64_t)(p->end - p->room) - total)
            return false;
        if (len > 0)
            memcpy(p->room + total, bytes + p->starts[place], len);
        total += len;
    }
    column_set(&p->to, column, p->room);
    column_set_bytes(&p->to, column, (uint32_t)total);
    p->room += pad8(total);
    return true;
}

/* Of each place once there is room for all; more is none of ours. */
static bool pick_columns(struct picking *p)
{
    for (const struct column *each = columns_table; each < columns_table + COLUMN_COUNT; each++) {
        if (column_pointer(&p->from, each) == NULL)
            continue;
        if (each->kind != COLUMN_BYTES)
            pick_words(p, each);
        else if (!pick_bytes(p, each))
            return false;
    }
    if (p->to.hdrs_bytes == 0)
        p->to.hdr_len = NULL; /* only others have headers */
    assert(p->room <= p->end);
    return true;
}

static bool places_valid(const uint32_t *places, uint32_t count, uint32_t events)
{
    for (uint32_t i = 0; i < count; i++)
        if (places[i] >= events)
            return false;
    return count > 0 && count <= events;
}

size_t chunk_pick(struct chunk_sealer *sealer, const struct chunk_view *view,
                  const uint32_t *places, uint32_t count, uint8_t **out)
{
    *out = NULL;
    if (!places_valid(places, count, view->count) || view->base_timestamp_us <= 0)
        return 0;
    const size_t unpacked = pad8(chunk_scratch_bytes(view)), starts = (size_t)view->count * 8,
                 most = (size_t)view->raw_bytes + 8 * COLUMN_COUNT;
    uint8_t *memory = malloc(unpacked + starts + most);
    struct picking p = {.places = places};
    if (memory == NULL || chunk_unpack_columns(view, memory, unpacked, &p.from) != 0) {
        free(memory);
        return 0;
    }
    p.starts = (uint64_t *)(void *)(memory + unpacked);
    p.room = memory + unpacked + starts;
    p.end = p.room + most;
    p.to.count = count;
    size_t written = 0;
    if (pick_columns(&p)) {
        struct chunk_columns made = {.base_timestamp_us = view->base_timestamp_us};
        made.columns = p.to;
        const size_t bound = chunk_bound(&made);
        if ((*out = malloc(bound)) != NULL)
            written = batch_seal(sealer, &made, *out, bound);
    }
    free(memory);
    return written;
}
