#include "format/otlp_json.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/decimal.h"

#define DEPTH_MAX 16 /* of values within values */

/* What a field is written as. */
enum kind {
    STRING, NUMBER, NANOS, BOOL, INT64, DOUBLE, BASE64, HEX, VALUE, PAIRS, VALUES, PAIR_LIST
};

struct known {
    uint8_t number, kind, type; /* its wire type */
    uint8_t name_len;
    const char *name; /* with its quotes and the colon */
};

#define KNOWN(number, kind, type, name) \
    {number, kind, type, sizeof("\"" name "\":") - 1, "\"" name "\":"}
#define NO_MORE {0, 0, 0, 0, NULL}

static void write_value(struct json_draft *draft, struct message value, int depth);

static void write_u64(struct json_draft *draft, uint64_t value, bool quoted)
{
    char text[DECIMAL_MAX + 2];
    char *end = text;
    if (quoted)
        *end++ = '"';
    end = put_u64(end, value);
    if (quoted)
        *end++ = '"';
    assert((size_t)(end - text) <= sizeof text);
    json_put(draft, text, (size_t)(end - text));
}

static void write_i64(struct json_draft *draft, uint64_t value)
{
    char text[DECIMAL_MAX + 4];
    const int len = snprintf(text, sizeof text, "\"%lld\"", (long long)value);
    json_put(draft, text, (size_t)len);
}

static void write_hex(struct json_draft *draft, struct message bytes)
{
    static const char digits[] = "0123456789abcdef";
    JSON_TEXT(draft, "\"");
    for (; bytes.p < bytes.end && !draft->is_full; bytes.p++)
        json_put(draft, (const char[]){digits[*bytes.p >> 4], digits[*bytes.p & 15]}, 2);
    JSON_TEXT(draft, "\"");
}

static void write_base64(struct json_draft *draft, struct message bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    JSON_TEXT(draft, "\"");
    for (; message_len(&bytes) > 0 && !draft->is_full;) {
        const size_t n = message_len(&bytes) < 3 ? message_len(&bytes) : 3;
        const uint32_t bits = (uint32_t)bytes.p[0] << 16 | (n > 1 ? (uint32_t)bytes.p[1] << 8 : 0) |
                              (n > 2 ? bytes.p[2] : 0);
        json_put(draft, (const char[]){digits[bits >> 18], digits[bits >> 12 & 63],
                                  n > 1 ? digits[bits >> 6 & 63] : '=', n > 2 ? digits[bits & 63]
                                                                              : '='}, 4);
        bytes.p += n;
    }
    JSON_TEXT(draft, "\"");
}

/* ---- messages ---- */

static const struct known *find(const struct known *table, const struct field *field)
{
    for (; table->name != NULL; table++)
        if (table->number == field->number && table->type == field->type)
            return table;
    return NULL;
}

static void write_message(struct json_draft *draft, struct message message,
                          const struct known *table, int depth);

static const struct known pair_fields[] = {KNOWN(1, STRING, WIRE_BYTES, "key"),
                                           KNOWN(2, VALUE, WIRE_BYTES, "value"),
                                           NO_MORE};
static const struct known value_fields[] = {KNOWN(1, STRING, WIRE_BYTES, "stringValue"),
                                            KNOWN(2, BOOL, WIRE_VARINT, "boolValue"),
                                            KNOWN(3, INT64, WIRE_VARINT, "intValue"),
                                            KNOWN(4, DOUBLE, WIRE_FIXED64, "doubleValue"),
                                            KNOWN(5, VALUES, WIRE_BYTES, "arrayValue"),
                                            KNOWN(6, PAIR_LIST, WIRE_BYTES, "kvlistValue"),
                                            KNOWN(7, BASE64, WIRE_BYTES, "bytesValue"),
                                            NO_MORE};

/* All fields with this number that are messages, as an array. */
static void write_repeated(struct json_draft *draft, struct message message, uint32_t number,
                           const struct known *table, int depth)
{
    struct field field;
    bool first = true;
    int more;
    JSON_TEXT(draft, "[");
    while ((more = message_next(&message, &field)) > 0 && !draft->is_full) {
        if (field.number != number || field.type != WIRE_BYTES)
            continue;
        if (!first)
            JSON_TEXT(draft, ",");
        first = false;
        write_message(draft, field.in, table, depth);
    }
    draft->is_malformed |= more < 0;
    JSON_TEXT(draft, "]");
}

static void write_field(struct json_draft *draft, const struct known *known,
                        const struct field *field, const struct message *all, int depth)
{
    switch ((enum kind)known->kind) {
    case STRING: json_put_string(draft, field->in); break;
    case NUMBER: write_u64(draft, field->value & UINT32_MAX, false); break;
    case NANOS: write_u64(draft, field->value, true); break;
    case BOOL:
        json_put(draft, field->value ? "true" : "false", field->value ? 4 : 5);
        break;
    case INT64: write_i64(draft, field->value); break;
    case DOUBLE: json_put_double(draft, field->value); break;
    case BASE64: write_base64(draft, field->in); break;
    case HEX: write_hex(draft, field->in); break;
    case VALUE: write_value(draft, field->in, depth + 1); break;
    case PAIRS: write_repeated(draft, *all, known->number, pair_fields, depth + 1); break;
    case VALUES:
    case PAIR_LIST:
        JSON_TEXT(draft, "{\"values\":");
        write_repeated(draft, field->in, 1, known->kind == VALUES ? value_fields : pair_fields,
                       depth + 1);
        JSON_TEXT(draft, "}");
        break;
    }
}

/* Fields in the order in which they came. A repeated one is written whole where it comes first; of
 * others that come again, the first. */
static void write_message(struct json_draft *draft, struct message message,
                          const struct known *table, int depth)
{
    const struct message all = message;
    struct field field;
    uint32_t seen = 0;
    int more = -1;
    JSON_TEXT(draft, "{");
    while (depth <= DEPTH_MAX && (more = message_next(&message, &field)) > 0 && !draft->is_full) {
        const struct known *known = find(table, &field);
        if (known == NULL || (seen & 1u << known->number))
            continue;
        if (seen != 0)
            JSON_TEXT(draft, ",");
        seen |= 1u << known->number;
        json_put(draft, known->name, known->name_len);
        write_field(draft, known, &field, &all, depth);
    }
    draft->is_malformed |= more < 0;
    JSON_TEXT(draft, "}");
}

static void write_value(struct json_draft *draft, struct message value, int depth)
{
    write_message(draft, value, value_fields, depth);
}

void otlp_write_record(struct json_draft *draft, struct message record, uint64_t *nanos)
{
    static const struct known fields[] = {KNOWN(1, NANOS, WIRE_FIXED64, "timeUnixNano"),
                                          KNOWN(2, NUMBER, WIRE_VARINT, "severityNumber"),
                                          KNOWN(3, STRING, WIRE_BYTES, "severityText"),
                                          KNOWN(5, VALUE, WIRE_BYTES, "body"),
                                          KNOWN(6, PAIRS, WIRE_BYTES, "attributes"),
                                          KNOWN(7, NUMBER, WIRE_VARINT, "droppedAttributesCount"),
                                          KNOWN(8, NUMBER, WIRE_FIXED32, "flags"),
                                          KNOWN(9, HEX, WIRE_BYTES, "traceId"),
                                          KNOWN(10, HEX, WIRE_BYTES, "spanId"),
                                          KNOWN(11, NANOS, WIRE_FIXED64, "observedTimeUnixNano"),
                                          KNOWN(12, STRING, WIRE_BYTES, "eventName"),
                                          NO_MORE};
    struct message rest = record;
    struct field field;
    uint64_t seen = 0;
    *nanos = 0;
    while (*nanos == 0 && message_next(&rest, &field) > 0) {
        if (field.type == WIRE_FIXED64 && field.number == 1)
            *nanos = field.value;
        else if (field.type == WIRE_FIXED64 && field.number == 11)
            seen = field.value;
    }
    *nanos = *nanos != 0 ? *nanos : seen;
    write_message(draft, record, fields, 0);
}

void otlp_write_resource(struct json_draft *draft, struct message resource)
{
    static const struct known fields[] = {KNOWN(1, PAIRS, WIRE_BYTES, "attributes"),
                                          KNOWN(2, NUMBER, WIRE_VARINT, "droppedAttributesCount"),
                                          NO_MORE};
    write_message(draft, resource, fields, 0);
}

void otlp_write_scope(struct json_draft *draft, struct message scope)
{
    static const struct known fields[] = {KNOWN(1, STRING, WIRE_BYTES, "name"),
                                          KNOWN(2, STRING, WIRE_BYTES, "version"),
                                          KNOWN(3, PAIRS, WIRE_BYTES, "attributes"),
                                          KNOWN(4, NUMBER, WIRE_VARINT, "droppedAttributesCount"),
                                          NO_MORE};
    write_message(draft, scope, fields, 0);
}
