/* Fuzzes the readers of what shippers of logs send. Whatever the bytes: no crash, no read past the
 * end, the body is not changed, and what is made stays within its budget. */
#include "format/batch.h"
#include "format/bulk.h"
#include "format/headers.h"
#include "format/hec.h"
#include "format/loki.h"
#include "format/otlp.h"
#include "format/remote_write.h"
#include "http/snappy.h"

#include "fuzz_codec.h"

#define BYTES_MAX (1u << 16)
#define NOW 1700000000000000

static void check_columns(const struct shipped *shipped)
{
    uint8_t wanted[SHIPPED_KINDS_MAX] = {0}, *memory;
    struct chunk_columns columns;
    struct batch_view view;
    uint64_t count = 0;
    for (uint32_t i = 0; i < shipped->kind_count; i++) {
        wanted[i] = shipped->kinds[i].flaw == SHIPPED_FINE;
        count += wanted[i] ? shipped->kinds[i].count : 0;
    }
    if (count == 0)
        return;
    REQUIRE(shipped_columns(shipped, wanted, NOW, &columns, &memory) && columns.count == count);
    const size_t bound = chunk_bound(&columns);
    uint8_t *batch = malloc(bound);
    const size_t len = batch_seal(NULL, &columns, batch, bound);
    REQUIRE(len > 0 && batch_open(batch, len, &view) == 0);
    const size_t cap = batch_scratch_bytes(&view);
    uint8_t *scratch = malloc(cap + 8);
    REQUIRE(batch_unpack(&view, BYTES_MAX, scratch, cap, &columns.columns) == 0);
    free(scratch);
    free(batch);
    free(memory);
}

static void check(const uint8_t *data, size_t len, int which)
{
    uint8_t *bytes = copy_of(data, len);
    struct shipped shipped = {.limits = {4096, BYTES_MAX, NOW / 2, NOW * 2}};
    const enum shipped_flaw flaw = which == 0   ? bulk_read(&shipped, bytes, len)
                                   : which == 1 ? hec_read(&shipped, bytes, len)
                                   : which == 2 ? otlp_read(&shipped, bytes, len)
                                   : which == 3 ? otlp_read_json(&shipped, bytes, len)
                                   : which == 5 ? loki_read(&shipped, bytes, len)
                                   : which == 6 ? loki_read_json(&shipped, bytes, len)
                                   : which == 7 ? remote_write_read(&shipped, bytes, len)
                                                : lines_read(&shipped, bytes, len, NULL, 0);
    const int is_anew = which == 1 || which == 2 || which > 5; /* values may be in rooms */
    REQUIRE(flaw < SHIPPED_FLAWS && (len == 0 || memcmp(bytes, data, len) == 0));
    REQUIRE(shipped.bytes <= BYTES_MAX && shipped.room_bytes <= BYTES_MAX);
    for (uint32_t i = 0; flaw == SHIPPED_FINE && i < shipped.count; i++) {
        const struct shipped_event *event = &shipped.events[i];
        REQUIRE(event->kind < shipped.kind_count);
        REQUIRE(event->value == NULL ||
                (event->value_len <= 4096 && (is_anew || (event->value >= bytes &&
                 event->value + event->value_len <= bytes + len))));
        REQUIRE(event->headers_len == 0 || headers_valid(event->headers, event->headers_len));
        REQUIRE(event->id == NULL ||
                (event->id >= bytes && event->id + event->id_len <= bytes + len));
    }
    if (flaw == SHIPPED_FINE)
        check_columns(&shipped);
    shipped_free(&shipped);
    free(bytes);
}

static void check_snappy(const uint8_t *data, size_t len)
{
    uint8_t *bytes = copy_of(data, len);
    const int64_t made = snappy_len(bytes, len);
    if (made >= 0 && made <= BYTES_MAX) {
        uint8_t *out = malloc(made > 0 ? (size_t)made : 1);
        snappy_unpack(bytes, len, out, (size_t)made);
        free(out);
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    for (int which = 0; which < 8; which++)
        check(data, len, which);
    check_snappy(data, len);
    return 0;
}
