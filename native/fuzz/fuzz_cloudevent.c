/* Fuzzes the reader of CloudEvents. Whatever the bytes: no crash, no read past the end; headers are
 * valid, names come once, data lie within the body and behind those of the event before. */
#include "base/json.h"
#include "format/cloudevent.h"

#include "fuzz_codec.h"

static uint8_t events_room[HEADERS_STORED_MAX];

static void check_events(const uint8_t *data, size_t len, bool batch)
{
    uint8_t *bytes = copy_of(data, len);
    struct cloudevents events;
    uint64_t end = 0;
    if (!cloudevents_open(bytes, len, batch, &events)) {
        free(bytes);
        return;
    }
    REQUIRE(json_valid(data, len) && events.count <= len && (batch || events.count == 1));
    for (uint64_t i = 0; i < events.count; i++) {
        struct headers_draft draft = {.out = events_room};
        struct cloudevent event;
        const enum cloudevent_flaw flaw = cloudevents_next(&events, &draft, &event);
        REQUIRE(flaw < CLOUDEVENT_FLAWS);
        if (flaw != CLOUDEVENT_FINE)
            break;
        REQUIRE(draft.count >= 4 && headers_valid(events_room, draft.len));
        if (event.data_len == CLOUDEVENT_NO_DATA)
            continue;
        REQUIRE(event.data_at >= end && event.data_len <= len - event.data_at);
        REQUIRE(!event.json || json_valid(bytes + event.data_at, event.data_len));
        end = event.data_at + event.data_len;
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    check_events(data, len, false);
    check_events(data, len, true);
    return 0;
}
