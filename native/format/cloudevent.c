#include "format/cloudevent.h"

#include <assert.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "base/moment.h"

#define PREFIX "ce-"
#define PREFIX_BYTES (sizeof PREFIX - 1)

/* What was seen of it, as bits. */
enum { ID = 1, SOURCE = 2, SPEC = 4, TYPE = 8 };
#define REQUIRED (ID | SOURCE | SPEC | TYPE)

struct text {
    uint8_t *p;
    size_t len;
};

/* One event while it is read. */
struct reading {
    struct headers_draft *draft;
    unsigned seen;
    uint64_t names; /* a bit for each that was seen, of those that its length and bytes choose */
    struct text content_type, data; /* data: as it stands; p NULL: none */
    bool base64, others; /* others: there were headers before */
};

/* The media type without its parameters ends in /json or +json. */
static bool is_json(const struct text *type)
{
    static const char json[] = "json";
    size_t len = 0;
    if (type->p == NULL)
        return true;
    while (len < type->len && type->p[len] != ';' && type->p[len] != ' ')
        len++;
    if (len < sizeof json)
        return false;
    const uint8_t *end = type->p + len - (sizeof json - 1);
    for (size_t i = 0; i < sizeof json - 1; i++)
        if ((end[i] | 0x20) != (uint8_t)json[i])
            return false;
    return end[-1] == '/' || end[-1] == '+';
}

static unsigned required_named(const struct json_rest *name)
{
    return json_is_named(name, "id", 2)             ? ID
           : json_is_named(name, "source", 6)       ? SOURCE
           : json_is_named(name, "specversion", 11) ? SPEC
           : json_is_named(name, "type", 4)         ? TYPE
                                                    : 0;
}

/* Letters and digits: what else may stand in a name of JSON is no attribute's. */
static bool is_attribute(const struct json_rest *name)
{
    const size_t len = (size_t)(name->end - name->p);
    if (len == 0 || len > HEADER_NAME_MAX - PREFIX_BYTES)
        return false;
    for (const uint8_t *p = name->p; p < name->end; p++)
        if ((*p < 'a' || *p > 'z') && (*p < '0' || *p > '9'))
            return false;
    return true;
}

/* Whether there is a header of that name. Most have a bit of their own: nothing is compared. */
static bool is_there(struct reading *r, const struct header *header)
{
    const uint8_t first = header->name[PREFIX_BYTES], last = header->name[header->name_len - 1];
    const uint64_t bit = (uint64_t)1 << ((first * 7u + last * 3u + header->name_len) & 63);
    const uint8_t *at = r->draft->out;
    const bool known = (r->names & bit) != 0 || r->others;
    r->names |= bit;
    for (uint32_t left = known && r->draft->len > 0 ? headers_begin(&at) : 0; left > 0; left--) {
        const struct header each = headers_next(&at);
        if (each.name_len == header->name_len &&
            memcmp(each.name, header->name, header->name_len) == 0)
            return true;
    }
    return false;
}

/* What the attributes that each event has must be, and the time. */
static enum cloudevent_flaw value_flaw(const struct json_rest *name, unsigned required,
                                       const struct text *value, bool quoted)
{
    int64_t us;
    if (required != 0 && (!quoted || value->len == 0))
        return CLOUDEVENT_ATTRIBUTE;
    if (required == SPEC && (value->len != 3 || memcmp(value->p, "1.0", 3) != 0))
        return CLOUDEVENT_VERSION;
    if (json_is_named(name, "time", 4) &&
        (!quoted || !date_parse((const char *)value->p, value->len, &us)))
        return CLOUDEVENT_TIME;
    return value->len > HEADERS_BYTES_MAX ? CLOUDEVENT_HEADERS : CLOUDEVENT_FINE;
}

static enum cloudevent_flaw add_attribute(struct reading *r, const struct json_rest *name,
                                          const struct text *value, bool quoted)
{
    static const char content_type[] = "content-type"; /* as binary mode says it */
    uint8_t made[HEADER_NAME_MAX];
    const unsigned required = required_named(name);
    if (!is_attribute(name))
        return CLOUDEVENT_ATTRIBUTE;
    const enum cloudevent_flaw flaw = value_flaw(name, required, value, quoted);
    if (flaw != CLOUDEVENT_FINE)
        return flaw;
    r->seen |= required;
    struct header header = {made, value->p, 0, (uint32_t)value->len};
    const size_t len = (size_t)(name->end - name->p);
    if (json_is_named(name, "datacontenttype", 15)) {
        r->content_type = *value;
        header.name = (const uint8_t *)content_type;
        header.name_len = sizeof content_type - 1;
    } else {
        memcpy(made, PREFIX, PREFIX_BYTES);
        memcpy(made + PREFIX_BYTES, name->p, len);
        header.name_len = (uint32_t)(PREFIX_BYTES + len);
    }
    if (is_there(r, &header))
        return CLOUDEVENT_ATTRIBUTE;
    return headers_add(r->draft, &header) ? CLOUDEVENT_FINE : CLOUDEVENT_HEADERS;
}

/* The characters of a string, where it is; the text of what is none. */
static bool take_text(const struct text *value, struct text *out)
{
    *out = *value;
    if (value->p[0] != '"')
        return true;
    out->p++;
    const int64_t len = json_write_text(out->p, value->len - 2, out->p, SIZE_MAX);
    out->len = (size_t)len;
    return len >= 0;
}

static enum cloudevent_flaw read_member(struct reading *r, const struct json_rest *name,
                                        const struct text *value)
{
    struct text text;
    const bool base64 = json_is_named(name, "data_base64", 11);
    const bool is_null = value->p[0] == 'n';
    if (base64 || json_is_named(name, "data", 4)) {
        if (is_null)
            return CLOUDEVENT_FINE;
        if (r->data.p != NULL || (base64 && value->p[0] != '"'))
            return CLOUDEVENT_DATA;
        r->data = *value;
        r->base64 = base64;
        return CLOUDEVENT_FINE;
    }
    if (value->p[0] == '{' || value->p[0] == '[')
        return CLOUDEVENT_ATTRIBUTE;
    if (is_null) /* as if it were not there */
        return CLOUDEVENT_FINE;
    if (!take_text(value, &text))
        return CLOUDEVENT_ATTRIBUTE;
    return add_attribute(r, name, &text, value->p[0] == '"');
}

static enum cloudevent_flaw find_data(const struct reading *r, const uint8_t *bytes,
                                      struct cloudevent *event)
{
    struct text data = r->data;
    event->json = !r->base64 && is_json(&r->content_type);
    event->data_at = 0;
    event->data_len = CLOUDEVENT_NO_DATA;
    if (data.p == NULL)
        return CLOUDEVENT_FINE;
    if (!event->json && (*data.p != '"' || !take_text(&r->data, &data)))
        return CLOUDEVENT_DATA; /* text that is no JSON stands in a string */
    if (r->base64) {
        const int64_t len = base64_write(data.p, data.len);
        if (len < 0)
            return CLOUDEVENT_DATA;
        data.len = (size_t)len;
    }
    event->data_at = (uint64_t)(data.p - bytes);
    event->data_len = data.len;
    return CLOUDEVENT_FINE;
}

/* The members of an object of which is known that it is JSON. */
static enum cloudevent_flaw read_event(struct reading *r, struct json_rest *rest)
{
    if (!json_take(rest, '{'))
        return CLOUDEVENT_SYNTAX;
    if (json_take(rest, '}'))
        return CLOUDEVENT_LACKS;
    do {
        struct json_rest name;
        bool whole = json_take_name(rest, &name);
        json_peek(rest);
        struct text value = {rest->p, 0};
        whole = whole && json_pass_value(rest);
        assert(whole && rest->p > value.p);
        value.len = (size_t)(rest->p - value.p);
        const enum cloudevent_flaw flaw = read_member(r, &name, &value);
        if (flaw != CLOUDEVENT_FINE)
            return flaw;
    } while (json_take(rest, ','));
    json_take(rest, '}');
    return (r->seen & REQUIRED) == REQUIRED ? CLOUDEVENT_FINE : CLOUDEVENT_LACKS;
}

enum cloudevent_flaw cloudevents_next(struct cloudevents *events, struct headers_draft *draft,
                                      struct cloudevent *event)
{
    struct reading reading = {.draft = draft, .others = draft->len > 0};
    *event = (struct cloudevent){.data_len = CLOUDEVENT_NO_DATA};
    enum cloudevent_flaw flaw = read_event(&reading, &events->rest);
    if (flaw == CLOUDEVENT_FINE)
        flaw = find_data(&reading, events->bytes, event);
    json_take(&events->rest, ','); /* of the array that they are in */
    return flaw;
}

bool cloudevents_open(uint8_t *bytes, size_t len, bool batch, struct cloudevents *out)
{
    *out = (struct cloudevents){bytes, {bytes, bytes + len}, 1};
    if (!json_valid(bytes, len) || json_peek(&out->rest) != (batch ? '[' : '{'))
        return false;
    if (!batch)
        return true;
    json_take(&out->rest, '[');
    struct json_rest rest = out->rest;
    out->count = 0;
    if (json_peek(&rest) == ']')
        return true;
    do {
        out->count++;
        json_peek(&rest);
        json_pass_value(&rest);
    } while (json_take(&rest, ','));
    return true;
}
